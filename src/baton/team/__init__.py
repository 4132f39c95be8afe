"""A team of agents that runs a task and leaves a complete trace: run, budget, resume, replay, fork."""
