"""Credit against the truth: every estimator that applies, on games whose exact credit is known."""

from credit_bench.figures import Figure, Target
from credit_bench.suite import Report, intervals, measure

__all__ = ["Figure", "Report", "Target", "intervals", "measure"]
