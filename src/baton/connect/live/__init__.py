"""Recorders that a person adds to a running program, for what its framework does not tell otherwise."""
