"""A recipe's stage: its task, the team that works on it, and rollouts of it.

Invariant: (recipe, seed, step, episode) names a rollout for good: its instance, its luck and its draws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from baton.engine.scripted import ScriptedEngine
from baton.errors import BatonError, UsageError
from baton.games.game import Game, Policy, State
from baton.learn.recipe import Recipe, TaskPart
from baton.settings import arguments, decode
from baton.tasks.catalog import TASKS, make_task
from baton.tasks.game_task import GameTask
from baton.tasks.reasoning import PLAYS, ReasoningTask
from baton.tasks.task import Split, Task
from baton.tasks.translate import translated
from baton.team.budget import Budget, Limits
from baton.team.protocol import MODEL_FAILED, NOT_ASKED, Engine
from baton.team.running import Run, header_of
from baton.team.surface import Lines, Tools
from baton.team.team import TEMPLATE, Assignment, Team, Topology, check_template
from baton.team.topology import TOPOLOGIES, make_topology
from baton.trace.trace import Trace

# -- answered --
# Refuses a round of play that says nothing of the team: a model that runs here broke, or nobody answered for a policy.
#
# Errors that an episode brings about (a prompt beyond the context, a call that a remote engine lost) are part of it, as
# long as some calls are answered; `failures` finds them, and they are counted.


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
    """Of an error, to stand in a sentence."""
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


_SPAWN_WEIGHT = 4.0


class Episode(Struct, frozen=True, kw_only=True):
    """One rollout to be made."""

    name: str
    """Of its trace."""
    instance: int
    seed: int
    split: Split = "train"
    step: int = 0


class Stage:
    """Builds the same team for every rollout; only the seed and the engines differ."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.task = _task(recipe.task)
        self.topology = self._topology()
        self.limits = decode(Limits, recipe.team.limits, "", "team.limits")
        Budget(self.limits)  # a limit that makes no sense is an error before anything is played
        check_template(self._template)

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles that a policy answers for. A game's other agents are part of the game."""
        if isinstance(self.task, GameTask):
            return (self.topology.root,)
        return tuple(role.name for role in self.topology.roles)

    @property
    def game(self) -> Game | None:
        return self.task.game if isinstance(self.task, GameTask) else None

    def assignment(self, instance: int, split: Split = "train") -> Assignment:
        return self.task.assignment(self.task.instance(instance, split))

    def team(self, engines: Mapping[str, Engine], assignment: Assignment, seed: int) -> Team:
        """`engines` by role."""
        everyone = dict(engines)
        surface: Any = self.recipe.team.surface
        for role in self.topology.roles:
            if role.name not in self.roles:
                everyone[role.name] = ScriptedEngine("nature", lambda _: "return done")
        return Team.of(
            self.topology,
            everyone,
            surface=surface,
            template=self._template,
            tools=assignment.tools,
            limits=self.limits,
            seed=seed,
        )

    async def play(self, engines: Mapping[str, Engine], episodes: Sequence[Episode]) -> list[Trace]:
        """All episodes side by side. Raises where a model broke, or all calls of a policy failed."""
        traces = list(await asyncio.gather(*(self._one(engines, episode) for episode in episodes)))
        check_answered(traces, {role: self._known_as(engine) for role, engine in engines.items()})
        return traces

    async def _one(self, engines: Mapping[str, Engine], episode: Episode) -> Trace:
        assignment = self.assignment(episode.instance, episode.split)
        team = self.team(engines, assignment, episode.seed)
        header = header_of(team, assignment, episode.name)
        told = {"step": episode.step, "instance": episode.instance, "split": episode.split}
        return await Run(team, assignment, structs.replace(header, meta=header.meta | {"train": told})).go()

    def _known_as(self, engine: Engine) -> str:
        """Who answers, for people: a policy of the recipe, or else an engine."""
        policy = getattr(engine, "policy", None)
        part = self.recipe.policies.get(policy) if policy is not None else None
        return f"engine {engine.name!r}" if part is None else f"policy {policy!r} ({part.model})"

    def script(self, name: str) -> Engine:
        """Scripted play of this task: a reference policy of a game, or the task's own."""
        if isinstance(self.task, GameTask):
            task = self.task
            own = {"eager": eager(task.game), "logged": getattr(task.game, "logging_policy", None)}.get(name)
            answer = task.script(name) if own is None else task.script_of(own, name)
            return ScriptedEngine(name, answer)
        surface = Lines() if self.recipe.team.surface == "lines" else Tools(self.assignment(0).tools)
        if isinstance(self.task, ReasoningTask) and name in PLAYS:
            return ScriptedEngine(name, translated(PLAYS[name](self.task.family), surface))
        play = self.task.reference_play()
        if play is None:
            raise UsageError(
                f"task {self.task.name!r} has no scripted play to start from. Give it a `reference_play`, or leave "
                "[warm] out and name a pretrained model."
            )
        return ScriptedEngine("reference", translated(play, surface))

    @property
    def _template(self) -> str:
        given = self.recipe.team.template
        return TEMPLATE if given is None else given

    def _topology(self) -> Topology:
        given = self.recipe.team
        topology = self.task.topology()
        if topology is None:
            topology = self._built()
        elif given.topology != topology.name:
            raise UsageError(
                f"{self.task.name} is played by a {topology.name} team of its own, not by {given.topology!r}. "
                f'Write topology = "{topology.name}" under [team], or leave it out.'
            )
        elif given.settings:
            name = next(iter(given.settings))
            raise UsageError(
                f"{self.task.name} is played by a team of its own, which has no setting {name!r}. "
                "Leave [team.settings] out; what the task can be set to goes under [task.settings]."
            )
        roles = []
        for role in topology.roles:
            sampling = structs.replace(
                role.sampling, max_tokens=given.max_tokens, temperature=given.temperature
            )
            roles.append(structs.replace(role, sampling=sampling, memory=given.memory))
        return structs.replace(topology, roles=tuple(roles))

    def _built(self) -> Topology:
        """By name, where the task brings no team of its own."""
        name, settings = self.recipe.team.topology, self.recipe.team.settings
        if name in TOPOLOGIES:
            settings = arguments(TOPOLOGIES[name], settings, "", "team.settings")
        tools = tuple(self.assignment(0).tools)
        return make_topology(name, **({"tools": tools} if tools else {}) | settings)


def eager(game: Game) -> Policy:
    """Random play that spawns readily: all that can be decided comes up, so all of it can be learned."""

    def policy(state: State) -> dict[str, float]:
        weights = {o: _SPAWN_WEIGHT if o.startswith("spawn") else 1.0 for o in game.options(state)}
        total = sum(weights.values())
        return {option: weight / total for option, weight in weights.items()}

    return policy


def _task(part: TaskPart) -> Task:
    known = TASKS.get(part.name)
    settings = part.settings if known is None else arguments(known, part.settings, "", "task.settings")
    return make_task(part.name, **settings)
