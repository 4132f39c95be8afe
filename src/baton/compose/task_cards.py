"""What there is to know about a task before it is run: a card, for every task that has a name here.

Tasks of other packages are among them (`baton.registry`), and so are their games. Invariant: a task that cannot be
made, because a package is missing, has a card as well, which says why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import Parameter, getdoc, signature
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from baton import registry
from baton.compose.run_settings import given_name
from baton.compose.team_from_settings import task_named
from baton.errors import BatonError
from baton.games.game import Game
from baton.games.game_trace import PREFIX
from baton.tasks.catalog import TASKS, find_task
from baton.tasks.game_task import GameTask
from baton.tasks.reasoning import ReasoningTask
from baton.tasks.task import Split, Task

GoldKind = Literal["answer", "optimum", "verifier", "score"]


class TaskCard(Struct, frozen=True, kw_only=True):
    """A task in figures and words."""

    name: str
    about: str = ""
    package: str = "baton"
    """Who brings it."""
    game: bool = False
    """Whether it is a game, whose optimum a solver knows."""
    own_team: str | None = None
    """The topology of the team that it brings; None: any team works on it."""
    topologies: tuple[str, ...] = ()
    """Those that it can be run with."""
    gold: GoldKind | None = None
    """What is known: a right answer, the optimum of a game, only whether an answer is right, or what a run scores."""
    scripted: bool = False
    """Whether it has scripted play, which `--policy reference` runs and small models start from."""
    settings: dict[str, Any] = {}
    """Setting -> its default, as `--set task.NAME=VALUE` changes it."""
    unavailable: str | None = None
    """Why it cannot be made here."""


class ExampleInstance(Struct, frozen=True, kw_only=True):
    """One instance, as its team is given it and as its verifier knows it."""

    seed: int
    split: Split
    prompt: str
    answer: str | None
    """A right one, where the task can tell."""
    tools: dict[str, str]
    """Name -> what it does."""
    milestones: tuple[str, ...]
    parts: tuple[str, ...]


def task_cards() -> list[TaskCard]:
    """A card for every task that has a name, in the order of the registry; other packages' come last."""
    games = [f"{PREFIX}{name}" for name in registry.names("game")]
    return [card_of(name) for name in dict.fromkeys((*registry.names("task"), *games))]


def card_of(name: str) -> TaskCard:
    """The card of one task, by any name that `baton run` takes."""
    try:
        build = find_task(name)
        told: dict[str, Any] = {"package": _package(name, build), "settings": _defaults(name, build)}
    except BatonError as error:
        if not registry.knows("task", name) and not registry.knows("game", name.removeprefix(PREFIX)):
            raise  # mistyped
        return TaskCard(name=name, unavailable=str(error))
    try:
        task = task_named(name, {}, "task")
        return _card(name, task, told)
    except BatonError as error:
        about = _first_line(getdoc(build) if isinstance(build, type) else None)
        return TaskCard(name=name, about=about, unavailable=str(error), **told)


def example_of(name: str, seed: int, split: Split = "train") -> ExampleInstance:
    """An instance of a task."""
    task = task_named(name, {}, "task")
    instance = task.instance(seed, split)
    answer = task.solve(instance)
    return ExampleInstance(
        seed=seed,
        split=split,
        prompt=instance.prompt if not isinstance(task, GameTask) else _first_state(task),
        answer=answer,
        tools={tool.name: _first_line(tool.description) for tool in task.tools(instance)},
        milestones=task.milestones(instance),
        parts=task.parts(instance),
    )


def _card(name: str, task: Task, told: dict[str, Any]) -> TaskCard:
    own = task.topology()
    game = isinstance(task, GameTask)
    return TaskCard(
        name=name,
        about=_about(task),
        game=game,
        own_team=None if own is None else own.name,
        topologies=registry.names("topology") if own is None else (own.name,),
        gold=_gold(task),
        scripted=game or task.reference_play() is not None,
        **told,
    )


def _gold(task: Task) -> GoldKind | None:
    if isinstance(task, GameTask):
        return "optimum"
    if task.scores_runs:
        return "score"
    instance = task.instance(0)
    if task.solve(instance) is not None:
        return "answer"
    assignment = task.assignment(instance)
    if assignment.score is not None:
        return "score"
    return None if assignment.verify is None else "verifier"


def _about(task: Task) -> str:
    if isinstance(task, GameTask):  # a game's page is its module
        return _first_line(sys.modules[type(task.game).__module__].__doc__ or getdoc(type(task.game)))
    if isinstance(task, ReasoningTask):
        return _first_line(getdoc(type(task.family)))
    return _first_line(getdoc(type(task)))


def _first_state(task: GameTask) -> str:
    """What the orchestrator of a game reads first; which of several beginnings it is, is chance."""
    return task.game.text(task.game.start()[0].state)


def _defaults(name: str, build: Callable[..., Task] | Task) -> dict[str, Any]:
    """Setting -> default; what has none is written as such."""
    if isinstance(build, Task):
        return {}
    if name.startswith(PREFIX):
        kind: type[Game] = registry.resolve("game", name.removeprefix(PREFIX))
        return structs.asdict(kind())
    return {
        each.name: given_name("required") if each.default is Parameter.empty else _plain(each.default)
        for each in signature(build).parameters.values()
        if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }


def _plain(value: Any) -> Any:
    """A default as JSON has it; an object as it writes itself."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return repr(value)


def _package(name: str, build: Callable[..., Task] | Task) -> str:
    """The package that brings a task, or a game."""
    if name in TASKS:
        return "baton"
    owner: Any = registry.resolve("game", name.removeprefix(PREFIX)) if name.startswith(PREFIX) else build
    module = getattr(owner, "__module__", None) or type(owner).__module__
    return str(module).partition(".")[0]


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n", 1)[0]
