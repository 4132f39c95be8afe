"""A pretrained language model on reasoning-gym's problems; see `benchmarks/real_task.py`."""
