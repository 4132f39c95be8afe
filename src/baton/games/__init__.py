"""Exact games: decision problems with solvers, a regret ledger over the five decisions, play on teams and tables."""
