"""Tasks by name: those that Baton ships, games and families of problems among them, and those of other packages.

A task goes by a shipped, registered or installed name, or by `module:attr` for a class, a function that makes one, or
a task itself. `game:NAME` is a game as a task, and `game:module:attr` a game of one's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from baton import registry
from baton.errors import UsageError, nearest
from baton.games.game_trace import PREFIX
from baton.games.library import GAMES, make_game
from baton.settings import Count, arguments
from baton.tasks.agentdojo.package import PREFIX as AGENTDOJO
from baton.tasks.agentdojo.package import SUITES, VERSION, SuiteName
from baton.tasks.dispatch import Dispatch
from baton.tasks.formalise import Formalise
from baton.tasks.game_task import GameTask
from baton.tasks.inspection import Inspection
from baton.tasks.jsonl import JsonlTask
from baton.tasks.kuhn_poker import KuhnPoker
from baton.tasks.needle import Needle
from baton.tasks.reasoning import FAMILIES, ReasoningTask
from baton.tasks.reasoning import PREFIX as REASONING
from baton.tasks.shard_sum import ShardSum
from baton.tasks.task import Task
from baton.tasks.voters import VotersTask
from baton.tasks.wide import WideTask
from baton.team.tools.sandbox_levels import DEFAULT, Level


def _game(name: str) -> Callable[..., Task]:
    def build(**settings: Any) -> Task:
        return GameTask(make_game(name, settings), name)

    return build


def _reasoning(family: str) -> Callable[..., Task]:
    def build(
        *,
        size: int | None = None,
        digits: int = 1,
        team: Literal["small", "single", "any"] = "small",
        python: bool = False,
        sandbox: Level = DEFAULT,
        partial: bool = False,
        max_tokens: int = 1024,
    ) -> Task:
        return ReasoningTask(
            FAMILIES[family],
            size=size,
            digits=digits,
            team=team,
            python=python,
            sandbox=sandbox,
            partial=partial,
            max_tokens=max_tokens,
        )

    return build


def _agentdojo(suite: SuiteName) -> Callable[..., Task]:
    def build(
        *,
        injections: bool = False,
        user_task: str | None = None,
        injection_task: str | None = None,
        wording: Literal["goal", "important_instructions"] = "goal",
        where: Literal["seen", "everywhere"] = "seen",
        obeys: bool = False,
        plans: bool = False,
        team: Literal["single", "any"] = "single",
        max_turns: Count = 60,
        max_tokens: Count = 1024,
        version: str = VERSION,
    ) -> Task:
        from baton.tasks.agentdojo.suite_task import AgentDojoTask  # it reads YAML, which nothing else needs

        return AgentDojoTask(
            suite,
            injections=injections,
            user_task=user_task,
            injection_task=injection_task,
            wording=wording,
            where=where,
            obeys=obeys,
            plans=plans,
            team=team,
            max_turns=max_turns,
            max_tokens=max_tokens,
            version=version,
        )

    return build


TASKS: dict[str, Callable[..., Task]] = {
    ShardSum.name: ShardSum,
    KuhnPoker.name: KuhnPoker,
    Inspection.name: Inspection,
    VotersTask.name: VotersTask,
    Formalise.name: Formalise,
    Needle.name: Needle,
    Dispatch.name: Dispatch,
    JsonlTask.name: JsonlTask,
    WideTask.name: WideTask,
    **{f"{PREFIX}{name}": _game(name) for name in GAMES},
    **{f"{REASONING}{name}": _reasoning(name) for name in FAMILIES},
    **{f"{AGENTDOJO}{name}": _agentdojo(name) for name in SUITES},
}
"""What Baton ships, by name."""


def make_task(name: str, **settings: Any) -> Task:
    """A task by name, with its settings. The name may be `module:attr`: see `check_task_trusted` for names in files."""
    build = find_task(name)
    if isinstance(build, Task):
        if settings:
            given = next(iter(settings))
            raise UsageError(f"task {name!r} is made already, so it cannot be set to another {given!r}.")
        return build
    made = build(**arguments(build, settings, f"task {name!r}"))
    if not isinstance(made, Task):
        raise UsageError(f"{name} makes a {type(made).__name__}; expected a Task (see examples/my_task.py).")
    return made


def find_task(name: str) -> Callable[..., Task] | Task:
    """What makes the task of this name, or the task itself."""
    game = name.removeprefix(PREFIX)
    if name not in TASKS and game != name and (registry.is_reference(game) or registry.knows("game", game)):
        return _game(game)
    if name.startswith((PREFIX, REASONING, AGENTDOJO)) and not registry.knows("task", name):
        raise UsageError(f"there is no task {name!r}. {nearest(name, registry.names('task'))}")
    found: Callable[..., Task] | Task = registry.resolve("task", name)
    if not callable(found) and not isinstance(found, Task):
        raise UsageError(f"task {name!r} is a {type(found).__name__}; expected a Task, or what makes one.")
    return found


def check_task_trusted(name: str, whose: str) -> None:
    """Refuse a task or game that would be imported because a file names it. `whose` is the file, in words."""
    kind = "game" if name.startswith(PREFIX) else "task"
    registry.check_trusted(kind, [name.removeprefix(PREFIX)], whose)
