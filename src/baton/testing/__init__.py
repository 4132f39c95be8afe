"""Conformance checks to run on your own extensions: each raises AssertionError with what was expected."""

from baton.testing.checks import CheckFailed, check_aggregator, check_surface, check_tool
from baton.testing.engines import check_engine
from baton.testing.estimators import check_estimator
from baton.testing.rewards import check_reward
from baton.testing.tasks import check_decpomdp, check_game, check_task
from baton.testing.topologies import check_topology

__all__ = [
    "CheckFailed",
    "check_aggregator",
    "check_decpomdp",
    "check_engine",
    "check_estimator",
    "check_game",
    "check_reward",
    "check_surface",
    "check_task",
    "check_tool",
    "check_topology",
]
