"""Credit: eight units, each with its estimators; records on the trace, and their way down to tokens.

Importing this fills `ESTIMATORS`: every module below lists its own.
"""

from baton.credit import (
    agent,
    backup,
    branch,
    gae,
    message,
    message_replay,
    mixing,
    orchestrator,
    role,
    shapley_forks,
    spawn_combined,
    spawn_fork,
    spawn_log,
    stop_replay,
    team,
    token,
    tool_call,
    turn,
)
from baton.credit.contract import (
    ESTIMATORS,
    CreditError,
    Estimator,
    find,
    team_return,
)
from baton.credit.partition import Partition, partition
from baton.credit.project import project

__all__ = [
    "ESTIMATORS",
    "CreditError",
    "Estimator",
    "Partition",
    "agent",
    "backup",
    "branch",
    "find",
    "gae",
    "message",
    "message_replay",
    "mixing",
    "orchestrator",
    "partition",
    "project",
    "role",
    "shapley_forks",
    "spawn_combined",
    "spawn_fork",
    "spawn_log",
    "stop_replay",
    "team",
    "team_return",
    "token",
    "tool_call",
    "turn",
]
