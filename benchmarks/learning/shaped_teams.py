"""Teams of random shapes whose every prefix has a value that is known exactly, as real traces.

A lead splits its work into divisions; a division is a tree of agents that put together what those below them return:

    all     right if all below are; they work side by side
    chain   the same, one after the other: a stage begins when the one before it has returned
    any     right if one below is
    vote    right if more than half of those below are

Leaves are workers, junior or senior, who choose to work carefully or quickly: that moves the chance that their tool's
result is right, and careful work costs PRICE / workers. The return is the share of divisions that came out right, less
what care cost. All are spawned before work begins; then whoever is ready acts, in an order drawn anew for each rollout.
So a prefix that has the plan has the exact value: chances of the open leaves, put together from below to the lead.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from baton.trace.records import Call, Edge, Event, Payload, Reward
from baton.trace.trace import Header, Trace

OPTIONS = ("careful", "quick")
CHANCES = {"junior": (0.85, 0.45), "senior": (0.95, 0.7)}
PRICE = 0.12
INNER = ("all", "chain", "any", "vote")
LEAD = "lead"
LEAST_SPREAD = 0.1
"""Of the share of divisions that come out right: shapes that hardly ever differ tell nothing."""


class Shape(Struct, frozen=True):
    """Who is above whom, and what each does with what is returned; the lead is 0, parents come first."""

    roles: tuple[str, ...]
    above: tuple[int, ...]
    below: tuple[tuple[int, ...], ...]

    @property
    def workers(self) -> list[int]:
        return [node for node, role in enumerate(self.roles) if role in CHANCES]

    @property
    def num_events(self) -> int:
        return 3 * (len(self.roles) - 1) + len(self.workers) + 2


Careful = Callable[[Shape, int], float]
"""The chance that a worker of a shape works carefully."""


def evenly(_shape: Shape, _node: int) -> float:
    """Both options as likely."""
    return 0.5


def drawn(seed: str, num_events: int) -> Shape:
    """A shape of about so many events, whose return is no foregone conclusion."""
    draw = random.Random(seed)
    num_workers = max(4, round(num_events / 5.4))
    while True:
        shape = _shape(draw, num_workers)
        worth = Worth(shape, evenly)
        chances = [worth.chance[node] for node in shape.below[0]]
        spread = math.sqrt(math.fsum(p * (1 - p) for p in chances)) / len(chances)
        if spread >= LEAST_SPREAD and abs(shape.num_events - num_events) <= 0.15 * num_events:
            return shape


def _shape(draw: random.Random, num_workers: int) -> Shape:
    roles, above = [LEAD], [-1]
    branching, skew = draw.randint(2, 5), draw.choice((0.5, 1.0, 4.0))
    seniors = draw.choice((0.2, 0.5, 0.8))
    divisions = draw.randint(2, 5) if num_workers < 60 else draw.randint(4, 12)

    def grow(parent: int, size: int, allowed: Sequence[str]) -> None:
        me = len(roles)
        above.append(parent)
        if size == 1:
            roles.append("senior" if draw.random() < seniors else "junior")
            return
        role = draw.choice(allowed)
        roles.append(role)
        for part in _split(draw, size, draw.randint(2, branching), skew):
            grow(me, part, ("any", "vote") if role in ("all", "chain") else ("all", "chain", "vote"))

    for part in _split(draw, num_workers, divisions, 4.0):
        grow(0, part, INNER)
    below: list[list[int]] = [[] for _ in roles]
    for node, parent in enumerate(above[1:], 1):
        below[parent].append(node)
    return Shape(tuple(roles), tuple(above), tuple(map(tuple, below)))


def _split(draw: random.Random, size: int, parts: int, even: float) -> list[int]:
    """So many parts of at least one."""
    parts = min(parts, size)
    weights = [draw.gammavariate(even, 1.0) for _ in range(parts)]
    found = [1] * parts
    for _ in range(size - parts):
        found[draw.choices(range(parts), weights)[0]] += 1
    return found


def right(role: str, chances: Sequence[float]) -> float:
    """The chance that what is put together of these is right."""
    if role == LEAD:
        return math.fsum(chances) / len(chances)
    if role in ("all", "chain"):
        return math.prod(chances)
    if role == "any":
        return 1 - math.prod(1 - p for p in chances)
    ways = [1.0]
    for p in chances:
        ways = [a * (1 - p) + b * p for a, b in zip([*ways, 0.0], [0.0, *ways], strict=True)]
    return math.fsum(ways[len(chances) // 2 + 1 :])


class Worth:
    """The exact value as work goes on: what a leaf came to is put together anew on its way to the lead."""

    def __init__(self, shape: Shape, careful: Careful) -> None:
        self.shape = shape
        self.price = PRICE / len(shape.workers)
        self.chance = [0.0] * len(shape.roles)
        self.cost = 0.0
        self.care = {node: careful(shape, node) for node in shape.workers}
        for node in reversed(range(len(shape.roles))):
            role = shape.roles[node]
            if role in CHANCES:
                careful_chance, quick_chance = CHANCES[role]
                p = self.care[node]
                self.chance[node] = p * careful_chance + (1 - p) * quick_chance
                self.cost += p * self.price
            else:
                self.chance[node] = right(role, [self.chance[each] for each in shape.below[node]])

    @property
    def value(self) -> float:
        return self.chance[0] - self.cost

    def choose(self, node: int, choice: int) -> None:
        self.cost += self.price * ((choice == 0) - self.care[node])
        self._now(node, CHANCES[self.shape.roles[node]][choice])

    def see(self, node: int, was_right: bool) -> None:
        self._now(node, float(was_right))

    def _now(self, node: int, chance: float) -> None:
        self.chance[node] = chance
        while node:
            node = self.shape.above[node]
            self.chance[node] = right(
                self.shape.roles[node], [self.chance[each] for each in self.shape.below[node]]
            )


class Rollout(NamedTuple):
    """A trace and the truth about it."""

    trace: Trace
    total: float
    values: np.ndarray
    """Of every prefix, by the shape; before the plan is there no critic can know it."""
    planned: int
    """Events until all were spawned."""
    choices: np.ndarray
    """Places of the workers' choices."""
    care: np.ndarray
    """The chance of careful at each."""
    nodes: np.ndarray


def play(shape: Shape, name: str, careful: Careful = evenly) -> Rollout:
    """One rollout; `name` names the draws."""
    return _Play(shape, name, careful).whole()


class _Play:
    def __init__(self, shape: Shape, name: str, careful: Careful) -> None:
        self.shape, self.name = shape, name
        self.draw = random.Random(name)
        self.worth = Worth(shape, careful)
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.calls: list[Call] = []
        self.payloads: dict[str, Payload] = {}
        self.values = [self.worth.value]
        self.last: dict[int, str] = {}
        """The latest event of each agent; of one that did nothing yet, its spawn."""
        self.choices: list[int] = []
        self.nodes: list[int] = []

    def whole(self) -> Rollout:
        self._plan()
        planned = len(self.events)
        self._work()
        total = self.worth.value
        trace = Trace(
            header=Header(trace_id=self.name, task_id="shaped", topology="hierarchical"),
            events=tuple(self.events), edges=tuple(self.edges), calls=tuple(self.calls), payloads=self.payloads,
            rewards=(Reward(family="shared", unit="team", target="team", value=total),),
        )  # fmt: skip
        care = [self.worth.care[node] for node in self.nodes]
        return Rollout(
            trace, total, np.array(self.values), planned, np.array(self.choices), np.array(care), np.array(self.nodes)
        )  # fmt: skip

    def _plan(self) -> None:
        ready = list(self.shape.below[0])
        while ready:
            node = ready.pop(self.draw.randrange(len(ready)))
            parent, role = self.shape.above[node], self.shape.roles[node]
            said = f"spawn a{node} {role}"
            self._add(parent, "spawn", said, role=role, to=f"a{node}", decision="spawn")
            self.last[node] = self.events[-1].id
            ready += self.shape.below[node]

    def _work(self) -> None:
        waiting = [len(below) for below in self.shape.below]
        ready: list[tuple[int, int]] = []
        after: dict[int, str] = {}
        self._begin(0, ready, after, None)
        while ready:
            node, step = ready.pop(self.draw.randrange(len(ready)))
            if self.shape.roles[node] in CHANCES:
                self._leaf(node, step, after)
                if step < 2:
                    ready.append((node, step + 1))
                    continue
            elif step == 0:
                self._fuse(node)
                ready.append((node, 1))
                continue
            elif node == 0:
                return self._add(0, "orchestrator_decision", "stop", decision="stop")
            else:
                self._return(node)
            parent = self.shape.above[node]
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append((parent, 0))
            elif self.shape.roles[parent] == "chain":
                stages = self.shape.below[parent]
                self._begin(stages[stages.index(node) + 1], ready, after, self.events[-1].id)
        return None

    def _begin(
        self, node: int, ready: list[tuple[int, int]], after: dict[int, str], cause: str | None
    ) -> None:
        """All leaves that may start, and what they waited for."""
        if self.shape.roles[node] in CHANCES:
            ready.append((node, 0))
            if cause is not None:
                after[node] = cause
            return
        stages = self.shape.below[node]
        for each in stages[:1] if self.shape.roles[node] == "chain" else stages:
            self._begin(each, ready, after, cause)

    def _leaf(self, node: int, step: int, after: dict[int, str]) -> None:
        if step == 0:
            p = self.worth.care[node]
            choice = int(self.draw.random() >= p)
            self.choices.append(len(self.events))
            self.nodes.append(node)
            self.worth.choose(node, choice)
            self._add(
                node, "tool_call", OPTIONS[choice], tool="work", options=OPTIONS, choice=choice,
                propensity=(p, 1 - p)[choice], option_propensities=(p, 1 - p),
            )  # fmt: skip
            if node in after:
                self.edges.append(Edge(src=after[node], dst=self.events[-1].id, type="causal"))
        elif step == 1:
            was_right = self.draw.random() < self.worth.chance[node]
            self.worth.see(node, was_right)
            self._add(node, "tool_result", None, tool="work", status="ok" if was_right else "failed")
        else:
            self._return(node)

    def _fuse(self, node: int) -> None:
        sources = [self.last[each] for each in self.shape.below[node]]
        self._add(node, "aggregate", f"put together {self.shape.roles[node]}", decision="aggregate")
        self.edges += [Edge(src=each, dst=self.events[-1].id, type="return") for each in sources]

    def _return(self, node: int) -> None:
        found = "ok" if self.worth.chance[node] == 1 else "failed"
        to = f"a{self.shape.above[node]}"
        self._add(node, "return", f"return {'right' if found == 'ok' else 'wrong'}", status=found, to=to)

    def _add(self, node: int, kind: str, said: str | None, **more: object) -> None:
        agent, number = f"a{node}", len(self.events)
        event_id, call = f"e{number}", None
        if said is not None:
            call = f"c{len(self.calls)}"
            seen = self.events[int(self.last[node][1:])].status if node in self.last else "ok"
            prompt = _payload(
                json.dumps([{"speaker": "user", "text": f"{agent} {self.shape.roles[node]} {seen}"}])
            )
            answer = _payload(said)
            self.payloads |= {prompt.ref: prompt, answer.ref: answer}
            self.calls.append(
                Call(
                    id=call, agent=agent, role=self.shape.roles[node], policy="main",
                    prompt_ref=prompt.ref, completion_ref=answer.ref,
                )
            )  # fmt: skip
        self.events.append(
            Event(id=event_id, t=float(number), type=kind, agent=agent, seq=number, call=call, **more)  # type: ignore[arg-type]
        )
        if node in self.last:
            before = self.last[node]
            own = self.events[int(before[1:])].agent == agent
            self.edges.append(Edge(src=before, dst=event_id, type="temporal" if own else "spawn"))
        self.last[node] = event_id
        self.values.append(self.worth.value)


@lru_cache(65_536)
def _payload(text: str) -> Payload:
    return Payload.of(text)


def expected(shape: Shape, careful: Careful) -> float:
    """The exact return of a policy on a shape."""
    return Worth(shape, careful).value


def true_credit(rollout: Rollout) -> np.ndarray:
    """How far each choice moved the exact value."""
    return rollout.values[rollout.choices + 1] - rollout.values[rollout.choices]
