"""The report of a training run as one page that opens anywhere."""
