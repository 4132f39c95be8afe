"""Tasks by name, for the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from baton.errors import UsageError, nearest
from baton.games.game_trace import PREFIX
from baton.games.library import GAMES, make_game
from baton.tasks.game_task import GameTask
from baton.tasks.reasoning import FAMILIES, ReasoningTask, ScriptedPlay
from baton.tasks.reasoning import PREFIX as REASONING
from baton.tasks.shard_sum import ShardSum, play
from baton.tasks.task import Task
from baton.team.protocol import Request


def _game(name: str) -> Callable[..., Task]:
    def build(**settings: Any) -> Task:
        return GameTask(make_game(name, settings))

    return build


def _reasoning(family: str) -> Callable[..., Task]:
    def build(
        *,
        size: int | None = None,
        digits: int = 1,
        team: Literal["small", "single", "any"] = "small",
        python: bool = False,
        partial: bool = False,
        max_tokens: int = 1024,
    ) -> Task:
        return ReasoningTask(
            FAMILIES[family],
            size=size,
            digits=digits,
            team=team,
            python=python,
            partial=partial,
            max_tokens=max_tokens,
        )

    return build


TASKS: dict[str, Callable[..., Task]] = {
    ShardSum.name: ShardSum,
    **{f"{PREFIX}{name}": _game(name) for name in GAMES},
    **{f"{REASONING}{name}": _reasoning(name) for name in FAMILIES},
}
REFERENCE: dict[str, Callable[[Request], str]] = {
    ShardSum.name: play,
    **{f"{REASONING}{name}": ScriptedPlay(family) for name, family in FAMILIES.items()},
}
"""Task -> scripted play, where there is one."""


def make_task(name: str, **params: Any) -> Task:
    """A task by name."""
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r}. {nearest(name, TASKS)}")
    known = inspect.signature(TASKS[name]).parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for given in params:
        if given not in known and not any_name:  # a game refuses what it does not know itself
            raise UsageError(f"task {name!r} has no setting {given!r}. {nearest(given, known)}")
    return TASKS[name](**params)
