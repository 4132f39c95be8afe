"""A training run in its folder: begin, go on, checkpoints, evaluations."""
