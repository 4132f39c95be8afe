"""What the task behind a trace knows of its instance, for rewards and measures: the right answer, milestones, optimum.

A trace names its task; a task that is code of the trace's own choosing is asked only with trust, and otherwise the
trace is taken as one of another system's: nothing is known.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import structs

from baton.compose.again import own_settings
from baton.compose.run_settings import Settings
from baton.compose.team_from_settings import task_of
from baton.compose.trust import check_named
from baton.errors import BatonError
from baton.games.reference import reference
from baton.games.solve import evaluate, solve
from baton.tasks.game_task import GameTask
from baton.tasks.task import Instance, Task
from baton.trace.gold import Gold
from baton.trace.trace import Trace


def task_behind(
    trace: Trace, *, task: Task | None = None, trust: bool = False
) -> tuple[Task, Instance] | None:
    """The task and the instance that a trace of `baton run` worked on; None: not known."""
    settings = own_settings(trace)
    if settings is None:
        return None
    try:
        if task is None:
            if not trust:
                check_named([("task", settings.task)], f"trace {trace.trace_id!r}")
            task = task_of(settings)
        return task, task.instance(settings.instance_number, settings.split)
    except (BatonError, msgspec.ValidationError):
        return None


def reward_gold(
    trace: Trace, given: dict[str, Any], *, task: Task | None = None, trust: bool = False
) -> Gold:
    """What was given for this trace; the rest from its task."""
    behind = task_behind(trace, task=task, trust=trust)
    if behind is None:
        return Gold(**given)
    found, instance = behind
    parts = found.parts(instance)
    known: dict[str, Any] = {
        "verify": None if "answer" in given else found.assignment(instance).verify,
        "milestones": found.milestones(instance) or None,
        "reached": lambda prefix: found.reached(instance, prefix),
        "parts": parts or None,
        "covers": (lambda text: found.covers(instance, text)) if parts and "parts" not in given else None,
    }
    return Gold(**(known | given))


def measure_gold(trace: Trace, *, task: Task | None = None, trust: bool = False) -> Gold | None:
    """The same for measures; of games, the solver's optimum as well."""
    behind = task_behind(trace, task=task, trust=trust)
    settings = own_settings(trace)
    if behind is None or settings is None:
        return None
    found, instance = behind
    if isinstance(found, GameTask):
        return _gold_of_game(msgspec.json.encode(structs.replace(settings, policies={}, seed=0)))
    return Gold(
        verify=lambda answer: found.verify(instance, answer),
        milestones=found.milestones(instance) or None,
        reached=lambda other: found.reached(instance, other),
    )


@cache
def _gold_of_game(settings: bytes) -> Gold | None:
    """The solver's optimum, and the value of playing at random."""
    task = task_of(msgspec.json.decode(settings, type=Settings))
    assert isinstance(task, GameTask)
    try:
        optimum = solve(task.game).value
        return Gold(optimum=optimum, reference=evaluate(task.game, reference("random", task.game)).value)
    except BatonError:  # too large to solve
        return None
