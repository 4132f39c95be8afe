"""The figures by family: success, parallelism, collaboration, overhead, stopping, votes, failure modes.

Importing this fills `METRICS`: every module lists its own.
"""

from baton.measure.metric import METRICS
from baton.measure.metrics import (
    amplification,
    collaboration,
    overhead,
    parallel,
    stop_regret,
    success,
    votes,
)

__all__ = [
    "METRICS",
    "amplification",
    "collaboration",
    "overhead",
    "parallel",
    "stop_regret",
    "success",
    "votes",
]
