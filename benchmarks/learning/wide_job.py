"""A job of many independent items for a lead who decides how many workers to spawn and how much to hand to each.

The lead chooses a width (how many workers), then a share (how many items each gets, in turn, until none are left). A
worker takes one step at an item at a time and says by which method; by the right one the item is done with a chance, by
any other never. Who has done the whole share returns it; who has not after `patience` steps has done nothing. A worker
with nothing to do looks, and returns. Then the lead reads about how much is left, and spawns another wave or stops.

    return = 1[done >= 0.9 of the items] - price x (steps of workers + overhead x workers) - latency x critical steps

Everything is played by the team's own runtime: a step is a call, a tool call and nature's draw. Luck is by instance,
worker and step, the same for every rollout of an instance.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct, structs

import baton
from baton.tasks.task import Instance
from baton.team.action import Action, Return
from baton.team.agent import Agent, AgentRun, Role
from baton.team.clock import uniform
from baton.team.recording import Said
from baton.team.surface import Parsed, ParseError
from baton.team.team import Assignment
from baton.team.verbs import do
from baton.trace.graph.stages import Stages
from baton.trace.records import Reward, Sampling
from baton.trace.trace import Trace

METHODS = ("call guess", "call look", "call skim", "call ask")
"""Of which one is right, the same always."""
RIGHT = "call look"
STOP = "stop"
LEFT = ((0.0, "nothing"), (0.15, "little"), (0.5, "some"), (1.0, "most"))
"""Up to which share of the items is called what."""


class Job(Struct, frozen=True, kw_only=True):
    """How large the job is, what may be chosen, and what it costs."""

    items: int
    widths: tuple[int, ...]
    shares: tuple[int, ...] = (1, 3, 6, 10, 21, 42)
    waves: int = 2
    patience: int = 52
    """Steps that a worker has."""
    chance: float = 0.35
    """That the right method does an item."""
    enough: float = 0.9
    """Share of the items that is success."""
    price: float
    """Of a worker's step."""
    overhead: int = 12
    """Steps that a worker costs besides those it takes."""
    latency: float = 0.0012
    """Of a critical step."""
    brief: bool = False
    """A worker is asked once and all its steps are one event, drawn by the chances it gave its methods: as many items
    are done in as many steps with the same chances, in a tenth of the events. For workers who do not learn."""

    def wave(self, number: int, left: float) -> str:
        """What the lead reads before it chooses a width: the wave, and about how much is left."""
        return f"wave {number}: {amount(left / self.items)} left"

    def options(self, number: int) -> tuple[str, ...]:
        """Widths; after the first wave also to stop."""
        spawns = tuple(f"spawn {width}" for width in self.widths)
        return spawns if number == 1 else (STOP, *spawns)

    @property
    def hands(self) -> tuple[str, ...]:
        """Shares, as the lead says them."""
        return tuple(f"share {share}" for share in self.shares)

    def is_done(self, done: int) -> bool:
        return done >= self.enough * self.items


def job_of(workers: int, *, brief: bool = False) -> Job:
    """The job for at most 12, 24, 100 or 300 workers; what the best plan costs is about the same for all."""
    items, widths = {
        12: (30, (1, 2, 3, 5, 8, 12)),
        24: (60, (1, 2, 4, 6, 10, 17, 24)),
        100: (252, (1, 2, 4, 10, 25, 42, 70, 100)),
        300: (1260, (1, 2, 4, 10, 25, 42, 70, 100, 126, 210, 300)),
    }[workers]
    return Job(items=items, widths=widths, price=0.05 / items, brief=brief)


def amount(share: float) -> str:
    return next(word for bound, word in LEFT if share <= bound)


class Plain:
    """A choice is said word for word."""

    name = "plain"

    def __init__(self, tools: Any = ()) -> None:
        """It knows no tools."""

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        return [Parsed(Return(text), 0, len(text))]

    def render(self, action: Action) -> str:
        return action.text if isinstance(action, Return) else str(action)

    def describe(self, *_: Any) -> str:
        return ""

    def schemas(self, *_: Any) -> tuple[dict[str, Any], ...]:
        return ()


class _Play:
    """One run: what is left, who reads what, and what may be chosen now."""

    def __init__(self, job: Job, luck: int) -> None:
        self.job = job
        self.luck = luck
        self.left = job.items
        self.shown: tuple[str, tuple[str, ...]] = ("", ())
        """What the lead reads, and its options."""
        self.chosen = ""

    async def lead(self, me: Agent) -> None:
        job = self.job
        for number in range(1, job.waves + 1):
            reads = job.wave(number, self.left)
            await self._ask(me, reads, job.options(number), "stop" if number > 1 else "spawn")
            if self.chosen == STOP:
                break
            width = int(self.chosen.split()[1])
            before = len(me.children)
            await self._ask(me, f"{reads}, {width} workers", job.hands, "delegate", width)
            team = [child.id for child in me.children[before:]]
            await me.wait(team)
            self.left -= sum(int(me.results[name][1] or 0) for name in team if name in me.results)
            if job.is_done(job.items - self.left):
                break
        await me.stop(f"{job.items - self.left} of {job.items} done")

    async def _ask(
        self, me: Agent, reads: str, options: tuple[str, ...], decision: Any, width: int = 0
    ) -> None:
        """The lead's policy chooses; where it chose a share, workers are spawned in the same breath."""
        self.shown = reads, options

        async def carry_out(me: Agent, action: Action, said: Said, extra: dict[str, Any]) -> None:
            assert isinstance(action, Return)
            self.chosen = action.text
            is_stop = decision == "stop" and self.chosen == STOP
            made = structs.replace(said, decision="spawn" if decision == "stop" and not is_stop else decision)
            told = {"reads": reads} | ({} if is_stop or decision != "stop" else {"went_on": True})
            me.run.writer.emit(me, "orchestrator_decision", text=action.text, said=made, extra=extra | told)
            left = self.left
            for _ in range(width):
                share = min(left, int(self.chosen.split()[1]))
                left -= share
                await do(me, baton_spawn(share), Said(call=said.call), {})

        me.note(reads)
        await me.turn(carry_out)

    async def worker(self, me: Agent) -> None:
        """Its share, item by item."""
        mine = left = int(me.asked.rpartition(" ")[2])

        async def step(me: Agent, action: Action, said: Said, extra: dict[str, Any]) -> None:
            nonlocal left
            assert isinstance(action, Return)
            if self.job.brief:
                left = self._briefly(me, said, left)
                return
            drawn = uniform(f"{self.luck}/{me.id}/{me.turns}")
            done = bool(left) and action.text == RIGHT and drawn < self.job.chance
            left -= done
            event = me.next_event_id()
            me.run.writer.emit(me, "tool_call", tool=action.text[5:], said=said, extra=extra)
            me.run.writer.emit_draw(me, event, text="done" if done else "not done", extra={"done": done})

        while not me.done():
            me.note("an item")
            await me.turn(step)
            if not left:
                break
            if self.job.brief:
                me.run.give_up(me, f"it took more than {self.job.patience} steps")
        if not me.done():
            await me.returns(str(mine))

    def _briefly(self, me: Agent, said: Said, left: int) -> int:
        """All steps of a worker at once; what is left of its share."""
        job, steps = self.job, 0
        assert said.option_propensities is not None
        chance = job.chance * said.option_propensities[METHODS.index(RIGHT)]
        draw = random.Random(f"{self.luck}/{me.run.team.seed}/{me.id}")
        while steps < job.patience and (left or not steps):
            steps += 1
            left -= bool(left) and draw.random() < chance
        event = me.next_event_id()
        me.run.writer.emit(me, "tool_call", tool="all", said=said, extra={"steps": steps})
        me.run.writer.emit_draw(me, event, text=f"{left} left", extra={"done": not left})
        return left


def baton_spawn(share: int) -> Action:
    """A worker with so many items."""
    from baton.team.action import Spawn

    return Spawn("worker", f"items {share}")


class WideJob(baton.Task):
    """The job as a task; its score is of the whole run."""

    name = "wide-job"
    scores_runs = True

    def __init__(self, job: Job) -> None:
        self.job = job
        self._plays: WeakKeyDictionary[AgentRun, _Play] = WeakKeyDictionary()

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return f"Do {self.job.items} items.", None, int(random.integers(2**53))

    def verify(self, instance: Instance, answer: str) -> float:
        """The return counts (`Assignment.score`)."""
        return 0.0

    def assignment(self, instance: Instance) -> Assignment:
        def play(me: Agent) -> _Play:
            found = self._plays.get(me.run)
            if found is None:
                found = self._plays[me.run] = _Play(self.job, instance.data)
            return found

        return Assignment(
            task_id=instance.id,
            prompt=instance.prompt,
            score=self._score,
            options=lambda me: play(me).shown[1] if me.parent is None else METHODS,
            state=lambda me: play(me).shown[0] if me.parent is None else "item",
            spec={"task": self.name, "split": instance.split, "seed": instance.seed},
        )

    def play_of(self, me: Agent) -> _Play:
        """What its programs share."""
        me.run.assignment.state(me)
        return self._plays[me.run]

    def topology(self) -> baton.Topology:
        async def lead(me: Agent) -> None:
            await self.play_of(me).lead(me)

        async def worker(me: Agent) -> None:
            await self.play_of(me).worker(me)

        more: dict[str, Any] = {"memory": "latest", "sampling": Sampling(max_tokens=1)}
        return baton.Topology(
            name="centralized",
            root="orchestrator",
            roles=(
                Role(
                    name="orchestrator", verbs=("spawn", "wait", "return", "stop"), spawns=("worker",), **more
                ),
                Role(name="worker", verbs=("call", "return"), max_turns=self.job.patience, **more),
            ),
            programs={"orchestrator": lead, "worker": worker},
        )

    def _score(self, trace: Trace) -> Iterable[Reward]:
        found = figures(self.job, trace)
        yield Reward(family="shared", unit="team", target=trace.trace_id, value=earned(self.job, found))


class Figures(Struct, frozen=True, kw_only=True):
    """What a trace says of one run."""

    done: int
    steps: int
    agents: int
    finished: int
    """Of the agents, who returned a share that was not empty."""
    critical: int


def figures(job: Job, trace: Trace) -> Figures:
    """Read off the trace."""
    stages = Stages.of(trace)
    longest: dict[int, int] = {}
    for event, stage in zip(trace.events, stages.of_event.tolist(), strict=True):
        if event.type == "tool_call":
            longest[stage] = max(longest.get(stage, 1), event.extra.get("steps", 1))
    returned = [
        int(trace.text(event.content_ref) or 0)
        for event in trace.events
        if event.type == "return" and event.status == "ok"
    ]
    return Figures(
        done=sum(returned),
        steps=sum(event.extra.get("steps", 1) for event in trace.events if event.type == "tool_call"),
        agents=sum(event.type == "spawn" for event in trace.events),
        finished=sum(share > 0 for share in returned),
        critical=stages.critical_steps + sum(each - 1 for each in longest.values()),
    )


def earned(job: Job, found: Figures) -> float:
    """The return."""
    spent = job.price * (found.steps + job.overhead * found.agents)
    return job.is_done(found.done) - spent - job.latency * found.critical
