"""What a machine can do, as tried, and what is missing: the looking behind `baton doctor`."""
