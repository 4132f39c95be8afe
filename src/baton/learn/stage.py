"""A recipe's stage: its task, the team that works on it, and rollouts of it.

Invariant: (recipe, seed, step, episode) names a rollout for good: its instance, its luck and its draws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError, nearest
from baton.learn.answered import check_answered
from baton.learn.recipe import Recipe, TaskPart
from baton.tasks.catalog import REFERENCE, TASKS, make_task
from baton.tasks.game import Game, Policy, State
from baton.tasks.game_task import GameTask
from baton.tasks.reasoning import PLAYS, ReasoningTask
from baton.tasks.task import Split, Task
from baton.tasks.translate import translated
from baton.team.budget import Ledger, Limits
from baton.team.declared import make_struct, typed_settings
from baton.team.harness import TEMPLATE, check_template
from baton.team.policy import Engine
from baton.team.run import Run
from baton.team.running import header_of
from baton.team.setup import Assignment, Team, Topology
from baton.team.surface import Lines, Tools
from baton.team.topology import TOPOLOGIES, make_topology
from baton.trace.trace import Trace

__all__ = ["Episode", "Stage", "eager"]

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
        self.limits = make_struct(Limits, recipe.team.limits, "[team.limits]", "team.limits.")
        Ledger(self.limits)  # a limit that makes no sense is an error before anything is played
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
        for role in self.topology.roles:
            if role.name not in self.roles:
                everyone[role.name] = ScriptedEngine("nature", lambda _: "return done")
        return Team.of(
            self.topology,
            everyone,
            surface=self.recipe.team.surface,
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
        if self.task.name not in REFERENCE:
            raise UsageError(
                f"task {self.task.name!r} has no scripted play to start from. {nearest(self.task.name, REFERENCE)} "
                "Leave [warm] out and name a pretrained model."
            )
        return ScriptedEngine("reference", translated(REFERENCE[self.task.name], surface))

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
            settings = typed_settings(TOPOLOGIES[name], settings, "team.settings.")
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
    settings = part.settings if known is None else typed_settings(known, part.settings, "task.settings.")
    return make_task(part.name, **settings)
