"""The figures by family: success, parallelism, collaboration, debate, overhead, stopping, votes, failure modes.

Importing this fills `METRICS`: every module lists its own.
"""

from baton.measure.metric import METRICS
from baton.measure.metrics import (
    amplification,
    collaboration,
    debate,
    delegation,
    leakage,
    overhead,
    parallel,
    protocol,
    stop_regret,
    success,
    votes,
)

__all__ = [
    "METRICS",
    "amplification",
    "collaboration",
    "debate",
    "delegation",
    "leakage",
    "overhead",
    "parallel",
    "protocol",
    "stop_regret",
    "success",
    "votes",
]
