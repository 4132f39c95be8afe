"""Where a recipe's episodes are played: its task, the team that works on it, and rollouts of it.

A round of play that says nothing of the team is refused: a model that runs here broke, or nobody answered for a policy.
Errors that an episode brings about (a prompt beyond the context, a call that a remote engine lost) are part of it, as
long as some calls are answered; `failures` finds them, and they are counted.

Invariant: (recipe, seed, step, episode) names a rollout for good: its instance, its luck and its draws.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from baton.errors import BatonError
from baton.games.game import Game
from baton.tasks.game_task import GameTask
from baton.tasks.task import Split, Task
from baton.team.aggregate import Aggregator
from baton.team.budget import Limits
from baton.team.credentials import NO_CREDENTIALS, Credentials, open_vault
from baton.team.guard.policy import Guard
from baton.team.protocol import MODEL_FAILED, NOT_ASKED, Engine
from baton.team.running import Run, check_tools, header_of
from baton.team.shared_memory import SharedMemory
from baton.team.team import TEMPLATE, Assignment, Team, Topology
from baton.team.tools.tool import Tool
from baton.trace.trace import Trace

_SELDOM = 100_000
"""New objects after which the collector looks for cycles during a step: Python's own 700 cost a tenth of it."""
_guard = threading.Lock()
_thresholds: list[tuple[int, int, int]] = []
"""Of the program that a step runs in, once for each step that is under way."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """The body makes objects by the hundred thousand that hold no cycles: they are not looked through again and again.

    The program's own setting is back afterwards; one that collects even less often, or not at all, is kept.
    """
    with _guard:
        _thresholds.append(gc.get_threshold())
        if 0 < _thresholds[-1][0] < _SELDOM:
            gc.set_threshold(_SELDOM, *_thresholds[-1][1:])
    try:
        yield
    finally:
        with _guard:
            before = _thresholds[0]
            _thresholds.pop()
            if not _thresholds:
                gc.set_threshold(*before)


class Unanswered(BatonError):
    """Calls without which a round of play is worth nothing were not answered."""


def failures(trace: Trace) -> Iterator[tuple[str, str]]:
    """Calls that failed: the role that asked, and the error."""
    for event in trace.events:
        if event.status == "failed" and event.call is not None and event.type == "orchestrator_decision":
            call = trace.call_by_id[event.call]
            if call.finish_reason == "error":
                yield call.role or "", trace.text(event.content_ref) or ""


def first_line(error: str) -> str:
    """The first line of an error, without its full stop, to stand in a sentence."""
    return error.partition("\n")[0].rstrip(".")


def check_answered(traces: Sequence[Trace], answering: Mapping[str, str]) -> None:
    """Raise where a model that runs here broke, or where all calls failed of one who answers (role -> who)."""
    failed: dict[str, list[str]] = {}
    for trace in traces:
        for role, error in failures(trace):
            if error == NOT_ASKED:
                continue
            failed.setdefault(answering.get(role, ""), []).append(error)
    if not failed:
        return
    _check_whole(traces, failed.values())
    answered = {
        answering.get(call.role or "")
        for trace in traces
        for call in trace.calls
        if call.finish_reason not in ("error", "cancelled")
    }
    for who, errors in failed.items():
        if who and who not in answered:
            raise Unanswered(
                f"{who} answered none of {len(errors)} calls, so there is nothing to learn from or to measure. The "
                f"first error: {first_line(errors[0])}. Mend that and type: baton train --resume --out DIR; or train "
                "anew with another model for it."
            )


def _check_whole(traces: Sequence[Trace], failed: Iterable[Sequence[str]]) -> None:
    """Raise where a model broke."""
    broken = [error for errors in failed for error in errors if error.startswith(MODEL_FAILED)]
    if not broken:
        return
    first = first_line(broken[0])
    advice = (
        " There is too little memory: run less beside it, take policies.NAME.dtype=bfloat16 on a GPU, or lower "
        "rollout.groups or team.max_tokens."
        if "memory" in first.lower()
        else ""
    )
    calls = sum(len(trace.calls) for trace in traces)
    raise Unanswered(f"{len(broken)} of {calls} calls were not answered: {first}.{advice}")


class Episode(Struct, frozen=True, kw_only=True):
    """One rollout to be made."""

    name: str
    """What its trace will be called."""
    instance: int
    seed: int
    split: Split = "train"
    step: int = 0


class Stage(Struct, frozen=True, kw_only=True):
    """Builds the same team for every rollout; only the seed and the engines differ.

    It is made of objects alone: `baton.compose.stage_from_recipe` makes one from a recipe.
    """

    task: Task
    topology: Topology
    limits: Limits = field(default_factory=Limits)
    shared_memory: SharedMemory | None = None
    guard: Guard | None = None
    credentials: Credentials = NO_CREDENTIALS
    """Where the secrets are that tools need; a recipe cannot say it, and nothing of it is written down."""
    surface: str = "lines"
    template: str = TEMPLATE
    tools: tuple[Tool, ...] = ()
    """What the team may use beside the tools of the task."""
    aggregators: tuple[str | Aggregator, ...] = ()
    """Ways to fuse answers beside those that ship."""
    nature: Mapping[str, Engine] = field(default_factory=dict)
    """Role -> who answers for it where it is part of the task and no policy's."""
    script: Callable[[str], Engine]
    """Scripted play of the task by name, to start from."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Policy -> its model, for messages."""
    cached: bool = True
    """Whether names alone say what is played, so that what was made for it can be kept for later runs."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles that a policy answers for. A game's other agents are part of the game."""
        return tuple(role.name for role in self.topology.roles if role.name not in self.nature)

    @property
    def game(self) -> Game | None:
        """The exact game that is played, where it is one."""
        return self.task.game if isinstance(self.task, GameTask) else None

    def assignment(self, instance: int, split: Split = "train") -> Assignment:
        """An instance of the task as a team is given it."""
        return self.task.assignment(self.task.instance(instance, split)).with_tools(self.tools)

    def check_tools(self) -> None:
        """Refuse tools that cannot keep what they promise on this machine, or lack a credential."""
        tools = self.assignment(0).tools
        check_tools(self.topology.roles, tools)
        open_vault(self.credentials, self.topology.roles, tools)

    def team(self, engines: Mapping[str, Engine], assignment: Assignment, seed: int) -> Team:
        """The team of one rollout; `engines` by role."""
        return Team.of(
            self.topology,
            {**engines, **self.nature},
            surface=self.surface,
            template=self.template,
            tools=assignment.tools,
            aggregators=self.aggregators,
            shared_memory=self.shared_memory,
            guard=self.guard,
            credentials=self.credentials,
            limits=self.limits,
            seed=seed,
        )

    def with_max_tokens(self, max_tokens: int) -> Stage:
        """The same with another limit on each completion."""
        roles = tuple(
            structs.replace(role, sampling=structs.replace(role.sampling, max_tokens=max_tokens))
            for role in self.topology.roles
        )
        return structs.replace(self, topology=structs.replace(self.topology, roles=roles))

    async def play(self, engines: Mapping[str, Engine], episodes: Sequence[Episode]) -> list[Trace]:
        """All episodes side by side. Raises where a model broke, or all calls of a policy failed."""
        traces = await self.play_all(engines, episodes)
        self.check(engines, traces)
        return traces

    async def play_all(self, engines: Mapping[str, Engine], episodes: Sequence[Episode]) -> list[Trace]:
        """All episodes side by side; nobody looks yet whether they were answered."""
        return list(await asyncio.gather(*(self._one(engines, episode) for episode in episodes)))

    def check(self, engines: Mapping[str, Engine], traces: Sequence[Trace]) -> None:
        """Raise where a model broke, or all calls of a policy failed."""
        check_answered(traces, {role: self._known_as(engine) for role, engine in engines.items()})

    async def _one(self, engines: Mapping[str, Engine], episode: Episode) -> Trace:
        return await self.run_of(engines, episode).go()

    def run_of(self, engines: Mapping[str, Engine], episode: Episode, **more: Any) -> Run:
        """The run that makes a rollout; `more` as `Run` takes it."""
        assignment = self.assignment(episode.instance, episode.split)
        team = self.team(engines, assignment, episode.seed)
        header = header_of(team, assignment, episode.name)
        told = {"step": episode.step, "instance": episode.instance, "split": episode.split}
        return Run(team, assignment, structs.replace(header, meta=header.meta | {"train": told}), **more)

    def settle(self, folder: Path) -> None:
        """A run's folder is known. What a team leaves is its traces, so there is nothing else to put there."""

    def close(self) -> None:
        """The run is over. A team leaves nothing behind."""

    def alone(self) -> Stage | None:
        """Where a single agent plays the same; None: it is made from the team."""
        return None

    def figures(self, traces: Sequence[Trace]) -> dict[str, Any]:  # noqa: ARG002 (a team has none of its own)
        """What is told of a step's rollouts beside what their traces say."""
        return {}

    def _known_as(self, engine: Engine) -> str:
        """Who answers, for people: a policy of the recipe, or else an engine."""
        policy = getattr(engine, "policy", None)
        model = None if policy is None else self.models.get(policy)
        return f"engine {engine.name!r}" if model is None else f"policy {policy!r} ({model})"
