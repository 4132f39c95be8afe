"""A trace as what the page draws at once: columns of numbers for events, edges and agents. No content.

Works on any trace, valid or not: an edge to an event that is not there is left out and counted, and what
needs an acyclic graph says why it is missing. Invariant: row i of `events` is `trace.events[i]`, and None is
"not measured" in every column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from baton.errors import BatonError, TraceError
from baton.measure.metrics.scale import scale
from baton.trace.graph.arrays import Graph
from baton.trace.graph.timing import critical_path
from baton.trace.outcome import final_event
from baton.trace.records import Event
from baton.trace.trace import Trace, meta_table
from baton.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, STATUSES
from baton.view.headline import titled
from baton.view.lanes import Lane, Lanes
from baton.view.shared_memory import memory_said
from baton.view.web.worth import channels

# Bits of `flags`.
INFERRED, UNTRUSTED, HAS_CONTENT, HAS_OPTIONS = 1, 2, 4, 8
_MOST_CHOSEN = 60
_FIGURES = (
    "agents", "calls", "messages", "tool_calls", "tokens", "estimated_tokens", "seconds", "work_s", "span_s",
    "parallelism", "max_depth", "max_concurrency",
)  # fmt: skip


def picture(trace: Trace) -> dict[str, Any]:
    """Everything the page needs to draw a trace."""
    lanes = lane_order(Lanes(trace))
    number = {lane.agent: i for i, lane in enumerate(lanes)}
    lane_of = {id(event): i for i, lane in enumerate(lanes) for event in lane.events}
    calls = {call.id: i for i, call in enumerate(trace.calls)}
    notes: list[str] = []
    edges = _edges(trace, notes)
    critical, span_s = _critical(trace, notes)
    return {
        "trace": _about(trace),
        "words": {
            "types": EVENT_TYPES,
            "decisions": DECISIONS,
            "statuses": STATUSES,
            "edges": EDGE_TYPES,
        },
        "agents": _agents(lanes, number),
        "events": _events(trace, lane_of, number, calls),
        "edges": edges,
        "calls": {"id": [call.id for call in trace.calls]},
        "critical": critical,
        "span_s": span_s,
        "channels": channels(trace, number, calls),
        "notes": notes,
    }


def lane_order(lanes: Lanes) -> list[Lane]:
    """Each agent directly above those it spawned."""
    children: dict[str | None, list[Lane]] = {}
    for lane in lanes.lanes.values():
        children.setdefault(lane.parent, []).append(lane)
    ordered: list[Lane] = []
    stack = list(reversed(lanes.roots))
    while stack:
        lane = stack.pop()
        ordered.append(lane)
        stack.extend(reversed(children.get(lane.agent, ())))
    return ordered


def _about(trace: Trace) -> dict[str, Any]:
    header = trace.header
    run = meta_table(header, "run")
    size = scale(trace)
    return {
        "id": trace.trace_id,
        "task": header.task_id,
        "topology": header.topology,
        "system": header.system,
        "finished": trace.finished,
        "forked_from": header.meta.get("forked_from"),
        "train": header.meta.get("train"),
        "policies": run.get("policies"),
        "interventions": run.get("interventions"),
        "costs": trace.costs,
        "metrics": trace.metrics,
        "figures": {name: getattr(size, name) for name in _FIGURES},
        "answer": _answer(trace),
    }


def _answer(trace: Trace) -> int | None:
    """The event that gave the team's answer. None too where agents spawn each other, so that nobody leads."""
    try:
        event = final_event(trace)
    except TraceError:
        return None
    return None if event is None else trace.position[event.id]


def _agents(lanes: Sequence[Lane], number: dict[str, int]) -> dict[str, list[Any]]:
    depth: list[int] = []
    parents = [-1 if lane.parent is None else number[lane.parent] for lane in lanes]
    for parent in parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    return {
        "name": [lane.agent for lane in lanes],
        "role": [lane.role for lane in lanes],
        "is_agent": [lane.is_agent for lane in lanes],
        "parent": parents,
        "depth": depth,
        "start": [lane.start for lane in lanes],
        "end": [lane.end for lane in lanes],
        "tokens": [lane.tokens for lane in lanes],
        "ending": [lane.ending for lane in lanes],
    }


def _events(
    trace: Trace, lane_of: dict[int, int], number: dict[str, int], calls: dict[str, int]
) -> dict[str, list[Any]]:
    events = trace.events
    types = {word: i for i, word in enumerate(EVENT_TYPES)}
    decisions = {word: i for i, word in enumerate(DECISIONS)}
    statuses = {word: i for i, word in enumerate(STATUSES)}
    return {
        "id": [event.id for event in events],
        "t": [event.t for event in events],
        "duration": [event.duration_s for event in events],
        "type": [types[event.type] for event in events],
        "decision": [decisions[event.decision] for event in events],
        "status": [statuses[event.status] for event in events],
        "lane": [lane_of[id(event)] for event in events],
        "to": [-1 if event.to is None else number.get(event.to, -1) for event in events],
        "tool": [event.tool for event in events],
        "chosen": [titled(event)[:_MOST_CHOSEN] if _is_named(event) else None for event in events],
        "tokens": [event.tokens for event in events],
        "propensity": [event.propensity for event in events],
        "call": [-1 if event.call is None else calls.get(event.call, -1) for event in events],
        "flags": [
            INFERRED * event.inferred
            + UNTRUSTED * (event.trusted is False)
            + HAS_CONTENT * (event.content_ref is not None)
            + HAS_OPTIONS * (event.options is not None)
            for event in events
        ],
    }


def _is_named(event: Event) -> bool:
    """Whether its title is more than what stands in the other columns."""
    return event.type == "orchestrator_decision" or memory_said(event) is not None


def _edges(trace: Trace, notes: list[str]) -> dict[str, list[int]]:
    position = trace.position
    types = {word: i for i, word in enumerate(EDGE_TYPES)}
    kept = [edge for edge in trace.edges if edge.src in position and edge.dst in position]
    if lost := len(trace.edges) - len(kept):
        notes.append(f"{lost:,} of {len(trace.edges):,} edges name events that are not in the trace.")
    if len(position) < len(trace.events):
        twice = [name for name, n in Counter(event.id for event in trace.events).items() if n > 1]
        notes.append(f"{len(twice):,} event ids occur more than once, such as {twice[0]!r}.")
    return {
        "src": [position[edge.src] for edge in kept],
        "dst": [position[edge.dst] for edge in kept],
        "type": [types[edge.type] for edge in kept],
        "inferred": [i for i, edge in enumerate(kept) if edge.inferred],
    }


def _critical(trace: Trace, notes: list[str]) -> tuple[list[int] | None, float | None]:
    try:
        return critical_path(Graph.of(trace)) or (None, None)
    except BatonError as error:
        notes.append(f"No critical path: {error}")
        return None, None
