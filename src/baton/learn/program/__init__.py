"""Training somebody else's agent program, unmodified: its runs as rollouts, its calls answered by the policies."""
