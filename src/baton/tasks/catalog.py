"""Tasks by name, for the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from baton.errors import UsageError, nearest
from baton.tasks.shard_sum import ShardSum
from baton.tasks.shard_sum_play import play
from baton.tasks.task import Task
from baton.team.policy import Request

__all__ = ["REFERENCE", "TASKS", "make_task"]

TASKS: dict[str, type[Task]] = {ShardSum.name: ShardSum}
REFERENCE: dict[str, Callable[[Request], str]] = {ShardSum.name: play}
"""Task -> scripted play, where there is one."""


def make_task(name: str, **params: Any) -> Task:
    """A task by name."""
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r}. {nearest(name, TASKS)}")
    known = inspect.signature(TASKS[name]).parameters
    for given in params:
        if given not in known:
            raise UsageError(f"task {name!r} has no setting {given!r}. {nearest(given, known)}")
    return TASKS[name](**params)
