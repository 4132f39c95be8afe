"""Conformance checks to run on your own extensions: each raises AssertionError with what was expected."""

from baton.testing.check_backends import check_backend
from baton.testing.check_engines import check_engine
from baton.testing.check_estimators import check_estimator
from baton.testing.check_formats import check_format
from baton.testing.check_learning import check_critic, check_loss, check_monitor
from baton.testing.check_loggers import check_logger
from baton.testing.check_metrics import check_metric
from baton.testing.check_recipes import check_recipe
from baton.testing.check_rewards import check_reward
from baton.testing.check_safety import check_cost, check_sanitiser
from baton.testing.check_sources import check_source
from baton.testing.check_tasks import check_decpomdp, check_game, check_task
from baton.testing.check_tools import CheckFailed, check_aggregator, check_surface, check_tool
from baton.testing.check_topologies import check_topology

__all__ = [
    "CheckFailed",
    "check_aggregator",
    "check_backend",
    "check_cost",
    "check_critic",
    "check_decpomdp",
    "check_engine",
    "check_estimator",
    "check_format",
    "check_game",
    "check_logger",
    "check_loss",
    "check_metric",
    "check_monitor",
    "check_recipe",
    "check_reward",
    "check_sanitiser",
    "check_source",
    "check_surface",
    "check_task",
    "check_tool",
    "check_topology",
]
