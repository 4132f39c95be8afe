"""Blame: from a bad state back to the decision that is responsible for it."""
