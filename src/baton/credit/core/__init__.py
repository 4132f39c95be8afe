"""What estimators share: who did what, baselines, which events a credit covers, and the tree of rollouts."""
