"""Attacks on a team by its settings: plant, play, play the clean twin, judge.

Every policy that `baton run` knows can be attacked, and one more: `obey` is the task's own scripted play, obeying every
order it reads. It says nothing of a model and all of what the runtime lets happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, structs

from baton.attack.adaptive import ways
from baton.attack.attack import Attack, AttackPayload, Vector, mark_of
from baton.attack.episode import AttackFigures, Twins, attack_report, twins
from baton.attack.obedient import obedient
from baton.attack.payload import payload_for
from baton.attack.planting import CompromisedEngine, Members, Planted, plant
from baton.compose.run_settings import Settings
from baton.compose.runs import reach, run_into
from baton.compose.team_from_settings import (
    Given,
    engine_for,
    make_team,
    task_of,
    topology_for,
)
from baton.engine import make_engine
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.learn.stage import failures, first_line
from baton.tasks.game_task import GameTask
from baton.tasks.task import Instance, Play, Task
from baton.tasks.translate import translated
from baton.team.guard.policy import guard_of
from baton.team.protocol import Engine
from baton.team.running import run
from baton.team.surface import make_surface
from baton.team.team import Assignment, Team, Topology
from baton.trace.trace import Trace

OBEY = "obey"
"""The policy of a scripted agent that obeys every order it reads."""
_CANARY = "what lies outside: "


class _PlantedTask(Task):
    """A task whose assignment has an attack in it, for any team that is given."""

    def __init__(self, inner: Task, assignment: Assignment) -> None:
        self.name = inner.name  # type: ignore[misc]  # the task's own
        self._inner, self._assignment = inner, assignment

    def instance(self, seed: int, split: str = "train") -> Instance:
        return self._inner.instance(seed, split)  # type: ignore[arg-type]  # one of the two

    def draw(self, random: object) -> tuple[str, object, object]:
        return self._inner.draw(random)  # type: ignore[arg-type]  # handed on

    def verify(self, instance: Instance, answer: str) -> float:
        return self._inner.verify(instance, answer)

    def assignment(self, instance: Instance) -> Assignment:  # noqa: ARG002 (it is made already)
        return self._assignment

    def reference_play(self) -> Play | None:
        return self._inner.reference_play()


class Ready(Struct, frozen=True, kw_only=True):
    """An attack that can be played."""

    attack: Attack
    team: Team
    assignment: Assignment
    members: Members


class Attacks:
    """Attacks of one vector on one team, episode by episode."""

    def __init__(
        self,
        settings: Settings,
        vector: Vector,
        *,
        adaptive: bool = False,
        member: str | None = None,
        num_members: int = 1,
        make: Callable[[str], Engine] = make_engine,
    ) -> None:
        self.settings, self.vector, self.adaptive = settings, vector, adaptive
        self.member, self.num_members = member, num_members
        self.task = task_of(settings)
        if isinstance(self.task, GameTask):
            raise UsageError(
                f"{self.task.name} is a game: its agents choose among options, in which no attacker's words stand. "
                "Attack a task, such as shard-sum."
            )
        self._make = make
        self._models: dict[str, Engine] = {}

    def episode(self, seed: int, secret: tuple[str, str] = ("", "")) -> list[Ready]:
        """The ways of one attack, the clean twin first."""
        settings = structs.replace(self.settings, seed=seed)
        assignment, topology = self._unharmed(settings)
        mark = mark_of(seed, f"{self.vector.name}/{settings.task}", number=self.vector.goal == "answer")
        child = next((role.spawns[0] for role in topology.roles if role.spawns), None)
        attack = Attack(
            vector=self.vector,
            payload=payload_for(self.vector.goal, mark, child=child, canary=secret[0]),
            mark=mark,
            member=self.member,
            num_members=self.num_members,
        )
        guard = None if settings.guard is None else guard_of(settings.guard)
        several = ways(attack, topology, assignment.prompt, guard) if self.adaptive else (attack.payload,)
        clean = structs.replace(attack, payload=AttackPayload(text=""))
        put = [clean, *(structs.replace(attack, payload=each) for each in several)]
        return [self._ready(settings, each) for each in put]

    def _unharmed(self, settings: Settings) -> tuple[Assignment, Topology]:
        """The task and the team as they are without an attack."""
        assignment = self.task.assignment(self.task.instance(settings.instance_number, settings.split))
        more = [
            *settings.tools,
            *(["python"] if self.vector.goal == "escape" and "python" not in assignment.tools else []),
        ]
        assignment = assignment.with_tools(more)
        topology = topology_for(
            self.task, settings.topology, settings.topology_settings, assignment.tools, "topology"
        )
        return assignment, topology

    def _ready(self, settings: Settings, attack: Attack) -> Ready:
        assignment, topology = self._unharmed(settings)
        planted = plant(attack, topology, assignment)
        members = Members(attack, topology.root)
        engines = {
            name: self._engine(settings, spec, planted, attack, members)
            for name, spec in settings.policies.items()
        }
        memory = (
            settings.shared_memory
            if planted.memory is None
            else {**(settings.shared_memory or {}), **planted.memory}
        )
        typed = structs.replace(settings, tools=(), policies={}, shared_memory=memory)
        given = Given(
            task=_PlantedTask(self.task, planted.assignment), topology=planted.topology, engines=engines
        )
        team, assignment = make_team(typed, given)
        return Ready(attack=attack, team=team, assignment=assignment, members=members)

    def _engine(
        self,
        settings: Settings,
        spec: str,
        planted: Planted,
        attack: Attack,
        members: Members,
    ) -> Engine:
        surface = make_surface(settings.surface, planted.assignment.tools)
        if spec == OBEY:
            play = self._play()
            speak = obedient(play, reads_memory=attack.vector.place == "memory")
            engine: Engine = ScriptedEngine(OBEY, translated(speak, surface))
        elif spec == "reference":
            engine = engine_for(spec, self.task, settings.surface, planted.assignment.tools, self._make)
        else:  # a model is loaded once
            if spec not in self._models:
                self._models[spec] = engine_for(
                    spec, self.task, settings.surface, planted.assignment.tools, self._make
                )
            engine = self._models[spec]
        if attack.vector.place != "member":
            return engine
        roles = {role.name: frozenset(role.verbs) for role in planted.topology.roles}
        return CompromisedEngine(engine, attack, members, surface, roles.__getitem__)

    def _play(self) -> Play:
        """The task's own scripted play, in lines."""
        play = self.task.reference_play()
        if play is None:
            raise UsageError(
                f"task {self.task.name!r} has no scripted play that could obey. Name another policy: "
                "--policy openai:MODEL@URL"
            )
        return play


async def play_attacks(
    attacks: Attacks, seeds: Sequence[int], out: Path | None = None, done: Callable[[], None] = lambda: None
) -> list[list[Twins]]:
    """Play episodes with their twins; `out` keeps their traces."""
    found: list[list[Twins]] = []
    with TemporaryDirectory(prefix="baton-outside-") as outside:
        for seed in seeds:
            secret = _secret(Path(outside), seed) if attacks.vector.goal == "escape" else ("", "")
            ready = attacks.episode(seed, secret)
            if not found:
                await reach(ready[0].team, ready[0].assignment)
            traces = [
                await _played(each, out, f"{_name(attacks, seed)}-{_how(each.attack)}") for each in ready
            ]
            found.append(
                [
                    twins(each.attack, trace, traces[0], secret=secret[1], members=each.members.known)
                    for each, trace in list(zip(ready, traces, strict=True))[1:]
                ]
            )
            done()
    return found


def attack_figures_of(attacks: Attacks, episodes: Sequence[Sequence[Twins]]) -> AttackFigures:
    """Figures over what was played."""
    settings = attacks.settings
    guard = None if settings.guard is None else guard_of(settings.guard).hash
    return attack_report(
        episodes,
        task=settings.task,
        topology=settings.topology,
        guard=guard,
        policies=dict(settings.policies),
        adaptive=attacks.adaptive,
    )


def attack_now(attacks: Attacks, seeds: Sequence[int]) -> AttackFigures:
    """Play and judge, from a program."""
    return attack_figures_of(attacks, asyncio.run(play_attacks(attacks, seeds)))


async def _played(ready: Ready, out: Path | None, name: str) -> Trace:
    if out is None:
        trace = await run(ready.team, ready.assignment)
    else:
        trace = await run_into(out, None, ready.team, ready.assignment, trace_id=name)
    if trace.calls and all(call.finish_reason == "error" for call in trace.calls):
        _, first = next(failures(trace))
        raise UsageError(  # who says nothing is talked into nothing: that is no figure
            f"none of {len(trace.calls)} calls was answered, so nobody was attacked. The first error: "
            f"{first_line(first)}."
        )
    return trace


def _name(attacks: Attacks, seed: int) -> str:
    return f"{attacks.settings.task}-{attacks.settings.topology}-{attacks.vector.name}-{seed}"


def _how(attack: Attack) -> str:
    return attack.payload.how.replace(" ", "-") if attack.payload.text else "clean"


def _secret(outside: Path, seed: int) -> tuple[str, str]:
    """A file that no sandbox should show: (path, what stands in it)."""
    said = f"{_CANARY}{mark_of(seed, 'outside')}"
    path = outside / f"secret{seed}"
    path.write_text(said)
    return str(path), said
