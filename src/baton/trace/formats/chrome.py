"""Chrome's trace event JSON, out: open it at ui.perfetto.dev or chrome://tracing.

A process per top-level team (the agents under one child of a root, where there are two or more; the
others stay with their root), a thread per agent, a slice per event, an arrow per spawn, message,
return and aggregate edge, and two counters: agents alive and tokens spent.

Source: "Trace Event Format", the Chromium project. Times are microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from baton.errors import TraceError
from baton.trace.formats.jsonl import all_finite
from baton.trace.records import Event
from baton.trace.trace import Trace

_ARROWS = frozenset(("spawn", "message", "return", "aggregate"))
_SHOWN = (
    "id", "seq", "role", "from_", "to", "tool", "decision", "options", "choice", "propensity",
    "tokens", "status", "inferred", "why", "trusted", "call", "content_ref",
)  # fmt: skip
_SHORTEST_US = 1.0  # a slice of no length is not drawn
_DIGITS = 3  # of microseconds: what a clock does not tell is noise of the multiplication


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, _DIGITS)


def to_chrome(trace: Trace) -> dict[str, Any]:
    """The trace as a JSON object with `traceEvents`."""
    if not all_finite([(event.t, event.duration_s, event.propensity) for event in trace.events]):
        raise TraceError(f"trace {trace.trace_id} holds times that are not finite; JSON has none.")
    parents = {
        event.to: event.agent for event in trace.events if event.type == "spawn" and event.to is not None
    }
    team_of = _teams(trace, parents)
    threads = _Threads(team_of)
    slices = [threads.slice(event) for event in trace.events]
    return {
        "traceEvents": [
            *threads.names(),
            *slices,
            *_arrows(trace, slices),
            *_counters(trace, parents),
        ],
        "displayTimeUnit": "ms",
        "otherData": {
            "trace_id": trace.trace_id,
            "task_id": trace.header.task_id,
            "topology": trace.header.topology,
        },
    }


def encode_chrome(trace: Trace) -> bytes:
    return msgspec.json.encode(to_chrome(trace)) + b"\n"


def _teams(trace: Trace, parents: dict[str, str]) -> dict[str, str]:
    """Agent -> the agent its process is named after."""
    agents = dict.fromkeys(event.agent for event in trace.events) | dict.fromkeys(parents)
    root_of: dict[str, str] = {}
    top_of: dict[str, str] = {}
    for agent in agents:
        path = []
        while agent in parents and agent not in root_of:
            root_of[agent] = agent  # until it is known: a loop of spawns is a mistake, not a hang
            path.append(agent)
            agent = parents[agent]
        root = root_of.setdefault(agent, agent)
        top = top_of.setdefault(agent, agent)
        for below in reversed(path):
            top = below if top == root else top
            root_of[below], top_of[below] = root, top
    sizes = Counter(top_of.values())
    return {agent: top if sizes[top] > 1 else root_of[agent] for agent, top in top_of.items()}


class _Threads:
    """Gives each agent a thread; a second one where its events overlap, for slices must nest."""

    def __init__(self, team_of: dict[str, str]) -> None:
        self._team_of = team_of
        self._processes: dict[str, int] = {}
        self._lanes: dict[str, list[tuple[int, float]]] = {}  # agent -> (thread, when it is free again)
        self._threads: dict[int, tuple[int, str]] = {}  # thread -> process, name

    def slice(self, event: Event) -> dict[str, Any]:
        start, end = _microseconds(event.t), _microseconds(event.t + (event.duration_s or 0.0))
        thread = self._thread(event.agent, start, end)
        shown = {
            name.rstrip("_"): value
            for name in _SHOWN
            if (value := getattr(event, name)) not in (None, "none")
        }
        return {
            "ph": "X",
            "name": _title(event),
            "cat": event.type,
            "ts": start,
            "dur": max(round(end - start, _DIGITS), _SHORTEST_US),
            "pid": self._threads[thread][0],
            "tid": thread,
            "args": shown,
        }

    def _thread(self, agent: str, start: float, end: float) -> int:
        lanes = self._lanes.setdefault(agent, [])
        for number, (thread, free) in enumerate(lanes):
            if free <= start:
                lanes[number] = (thread, end)
                return thread
        process = self._processes.setdefault(self._team_of[agent], len(self._processes) + 1)
        thread = len(self._threads) + 1
        self._threads[thread] = (process, f"{agent} ({len(lanes) + 1})" if lanes else agent)
        lanes.append((thread, end))
        return thread

    def names(self) -> Iterator[dict[str, Any]]:
        yield _label("process_name", 0, 0, {"name": "team"})
        for name, process in self._processes.items():
            yield _label("process_name", process, 0, {"name": name})
        for thread, (process, name) in self._threads.items():
            yield _label("thread_name", process, thread, {"name": name})


def _label(what: str, process: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": what, "ts": 0, "pid": process, "tid": thread, "args": args}


def _title(event: Event) -> str:
    object_ = event.tool or event.to
    verb = (
        event.decision if event.type == "orchestrator_decision" and event.decision != "none" else event.type
    )
    return f"{verb} {object_}" if object_ else verb


def _arrows(trace: Trace, slices: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, edge in enumerate(trace.edges):
        src, dst = trace.position.get(edge.src), trace.position.get(edge.dst)
        if edge.type not in _ARROWS or src is None or dst is None:
            continue
        start, end = slices[src], slices[dst]
        both = {"name": edge.type, "cat": "edge", "id": number}
        yield {**both, "ph": "s", "ts": start["ts"], "pid": start["pid"], "tid": start["tid"]}
        # Clocks of different machines may disagree; an arrow still never goes back in time.
        ts = max(start["ts"], end["ts"])
        yield {**both, "ph": "f", "bp": "e", "ts": ts, "pid": end["pid"], "tid": end["tid"]}


def _counters(trace: Trace, parents: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Agents from their spawn (or first event) to their despawn (or last event), and tokens so far."""
    born: dict[str, float] = {}
    gone: dict[str, float] = {}
    despawned: set[str] = set()
    tokens: list[tuple[float, int]] = []
    for event in trace.events:
        end = event.t + (event.duration_s or 0.0)
        if event.type == "spawn" and event.to is not None:
            born.setdefault(event.to, event.t)
            gone.setdefault(event.to, end)
        if event.type == "despawn" and event.to is not None:
            gone[event.to] = event.t
            despawned.add(event.to)
        if event.type != "tool_result" or event.agent in parents:  # a tool is not an agent
            born.setdefault(event.agent, event.t)
            if event.agent not in despawned:
                gone[event.agent] = max(end, gone.get(event.agent, end))
        if event.tokens is not None:
            tokens.append((end, event.tokens))
    steps = [(t, 1) for t in born.values()] + [(max(t, gone[agent]), -1) for agent, t in born.items()]
    yield from _running("agents alive", "agents", steps)
    yield from _running("tokens", "tokens", tokens)


def _running(name: str, series: str, steps: list[tuple[float, int]]) -> Iterator[dict[str, Any]]:
    changes: Counter[float] = Counter()
    for t, by in steps:
        changes[t] += by
    total = 0
    for t in sorted(changes):
        total += changes[t]
        yield {"ph": "C", "name": name, "ts": _microseconds(t), "pid": 0, "tid": 0, "args": {series: total}}
