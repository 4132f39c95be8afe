"""A team's trace of any length, always the same for the same length: what the trace benchmarks run on.

An orchestrator spawns waves of workers. Each worker is a chain of messages, tool calls with their results
and decisions, ends in a return, and is despawned once the wave is aggregated; the last event is a stop.
Workers take turns by their own clocks, so their chains interleave. About 1.3 edges an event, in the order
a recorder writes them: an event, then the edges into it, its agent's own line first.

It is valid at every level. Content is named by address and withheld.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from random import Random
from typing import Any

from baton.trace.records import Edge, Event
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import EdgeType

__all__ = ["records", "team_trace"]

WAVE_EVENTS = 5_000
WORKER_EVENTS = 100
"""On average; from half to one and a half of it."""
LEAST_EVENTS = 20
TOOLS = ("search", "python", "browse", "read_file")
ROLES = ("researcher", "coder", "critic")
TURNS = ("message", "tool_call", "orchestrator_decision")
TURN_WEIGHTS = (0.45, 0.45, 0.1)
PLANS = ("continue", "communicate", "wait")


def team_trace(num_events: int) -> Trace:
    """A finished trace of exactly that many events."""
    if num_events < LEAST_EVENTS:
        raise SystemExit(f"got {num_events} events; a team needs at least {LEAST_EVENTS}.")
    return _Team(num_events).play()


def records(trace: Trace) -> Iterator[list[Event | Edge]]:
    """Each event with the edges into it, as a live run appends them."""
    edges = iter(trace.edges)
    edge = next(edges, None)
    for event in trace.events:
        together: list[Event | Edge] = [event]
        while edge is not None and edge.dst == event.id:
            together.append(edge)
            edge = next(edges, None)
        yield together


class _Team:
    def __init__(self, num_events: int) -> None:
        self._num_events = num_events
        self._random = Random(num_events)
        self._events: list[Event] = []
        self._edges: list[Edge] = []
        self._clock = {"lead": 0.0}
        self._inbox: dict[str, list[tuple[str, EdgeType]]] = {"lead": []}
        self._role: dict[str, str] = {}

    def play(self) -> Trace:
        wave = 0
        while (left := self._num_events - len(self._events) - 1) > 0:
            size = left if left < 1.5 * WAVE_EVENTS else WAVE_EVENTS
            self._wave(wave, size)
            wave += 1
        self._act("lead", "orchestrator_decision", decision="stop", **self._chosen(("stop", "spawn"), 0))
        ends = (event.t + (event.duration_s or 0.0) for event in self._events)
        kinds = [event.type for event in self._events]
        return Trace(
            header=Header(trace_id=f"team-{self._num_events}", task_id="synthetic", topology="centralized"),
            events=tuple(self._events),
            edges=tuple(self._edges),
            costs={
                "tokens": sum(event.tokens or 0 for event in self._events),
                "wall_clock_s": max(ends),
                "tool_calls": kinds.count("tool_call"),
                "messages": kinds.count("message"),
            },
        )

    def _wave(self, wave: int, size: int) -> None:
        """Exactly `size` events: an aggregate, and for each worker a spawn, its own and a despawn."""
        num_workers = max(1, size // WORKER_EVENTS)
        own = size - 1 - 2 * num_workers
        shares = [self._random.uniform(0.5, 1.5) for _ in range(num_workers)]
        turns = [max(0, int(own * share / sum(shares)) - 2) for share in shares]
        turns[0] += own - sum(turns) - num_workers  # each return is one more
        workers = [f"w{wave}.{index}" for index in range(num_workers)]
        left = dict(zip(workers, turns, strict=True))
        for worker in workers:
            role = self._role[worker] = self._random.choice(ROLES)
            chosen = self._chosen(("spawn", "delegate", "stop"), 0)
            spawned = self._act("lead", "spawn", to=worker, role=role, decision="spawn", **chosen)
            self._clock[worker] = self._clock["lead"]
            self._inbox[worker] = [(spawned, "spawn")]
        turn = [(self._clock[worker], worker) for worker in workers]
        heapq.heapify(turn)
        while turn:
            _, worker = heapq.heappop(turn)
            if left[worker]:
                left[worker] -= self._turn(worker, workers, left)
                heapq.heappush(turn, (self._clock[worker], worker))
            else:
                del left[worker]
                self._say(worker, "return", "lead", "return")
        self._clock["lead"] = max(self._clock[worker] for worker in workers)
        self._act("lead", "aggregate", decision="aggregate", tokens=self._random.randint(200, 2_000))
        for worker in workers:
            self._act("lead", "despawn", to=worker)

    def _turn(self, worker: str, workers: list[str], left: dict[str, int]) -> int:
        """One turn of a worker; how many events it took."""
        kind = self._random.choices(TURNS, TURN_WEIGHTS)[0]
        if kind == "tool_call" and left[worker] > 1:
            tool = self._random.choice(TOOLS)
            self._act(worker, "tool_call", tool=tool, pure=tool != "python", **self._said())
            self._act(worker, "tool_result", tool=tool, content_ref=self._address(), trusted=False)
            return 2
        if kind == "orchestrator_decision":
            plan = self._random.randrange(len(PLANS))
            self._act(worker, kind, decision=PLANS[plan], **self._chosen(PLANS, plan))
            return 1
        others = [other for other in self._random.choices(workers, k=3) if other in left and other != worker]
        self._say(worker, "message", others[0] if others else "lead", "message")
        return 1

    def _say(self, agent: str, type: str, to: str, edge: EdgeType) -> None:
        decision = "communicate" if type == "message" else "none"
        event = self._act(agent, type, from_=agent, to=to, decision=decision, **self._said())
        self._inbox[to].append((event, edge))

    def _act(self, agent: str, type: Any, **fields: Any) -> str:
        seq = len(self._events) + 1
        start = self._clock[agent]
        duration_s = round(self._random.expovariate(1.0), 6)
        fields.setdefault("role", self._role.get(agent))
        event = Event(
            id=f"e{seq}", seq=seq, t=round(start, 6), type=type, agent=agent, duration_s=duration_s, **fields
        )
        self._events.append(event)
        self._edges += [Edge(source, event.id, kind) for source, kind in self._inbox[agent]]
        self._inbox[agent] = [(event.id, "tool_dependency" if type == "tool_call" else "temporal")]
        self._clock[agent] = start + duration_s
        return event.id

    def _said(self) -> dict[str, Any]:
        return {
            "content_ref": self._address(),
            "tokens": self._random.randint(20, 800),
            "propensity": round(self._random.uniform(0.05, 1.0), 6),
        }

    def _chosen(self, options: tuple[str, ...], choice: int) -> dict[str, Any]:
        draws = [self._random.uniform(0.1, 1.0) for _ in options]
        whole = tuple(draw / sum(draws) for draw in draws)
        return {
            "options": options,
            "choice": choice,
            "propensity": whole[choice],
            "option_propensities": whole,
            "tokens": self._random.randint(20, 800),
        }

    def _address(self) -> str:
        return f"b2:{self._random.getrandbits(160):040x}"
