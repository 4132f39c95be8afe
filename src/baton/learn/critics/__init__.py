"""Critics: what a prefix of a trace is worth, by counting, by a network, or agent by agent."""
