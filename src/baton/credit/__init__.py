"""Credit: eight units, each with its estimators; records on the trace, and their way down to tokens.

Importing this fills `ESTIMATORS`: every module of `estimators` lists its own.
"""

from baton.credit.estimator import ESTIMATORS, CreditError, Estimator, find
from baton.credit.estimators import (
    anchor,
    event,
    gae,
    group,
    message_replay,
    mixing,
    partition,
    same_input,
    shapley_forks,
    spawn_fork,
    spawn_log,
    spawn_replay,
    stop_replay,
    telescope,
    tool_replay,
    turn,
)
from baton.trace.outcome import team_return

__all__ = [
    "ESTIMATORS",
    "CreditError",
    "Estimator",
    "anchor",
    "event",
    "find",
    "gae",
    "group",
    "message_replay",
    "mixing",
    "partition",
    "same_input",
    "shapley_forks",
    "spawn_fork",
    "spawn_log",
    "spawn_replay",
    "stop_replay",
    "team_return",
    "telescope",
    "tool_replay",
    "turn",
]
