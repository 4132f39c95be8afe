"""Taint on the trace: what strangers' words may have touched, by the edges and by who had read what.

How labels flow is `baton.trace.provenance`, which a guard follows in the run as well; what they amount to is here.

  violation  a consequential tool call with C, or with D in an argument that must be trusted, unless a guard let it
             through in the run: as planned, by where its values come from, or endorsed (extra["allowed"])

Invariant: a function of events by `seq` and of edges, whatever the order in the file. Sound for what travels
by edges; what one agent tells another by its timing, or by ending a run, is not followed (clean_replay.py
counts it apart). It says what may have been touched, and guarantees nothing about a model.
"""

from __future__ import annotations

from msgspec import Struct

from baton.measure.measured import MeasuredTrace
from baton.trace.provenance import Flow, Labels
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import EdgeType


class Taint(Struct, frozen=True, kw_only=True):
    """Ids of events, each tuple in `seq` order."""

    sources: tuple[str, ...]
    data: tuple[str, ...]
    control: tuple[str, ...]
    tainted: tuple[str, ...]
    """Events with data or control taint."""
    agents: tuple[str, ...]
    """Whose context was ever tainted, in the order it was."""
    consequential: tuple[str, ...]
    """Calls of consequential tools, tainted or not."""
    violations: tuple[str, ...]
    endorsed: tuple[str, ...]
    refused_endorsements: tuple[str, ...]
    """Endorsing events that count for nothing: their agent had read taint."""
    num_unlabelled_results: int
    """Tool results that do not say whether they are trusted; taken as trusted."""
    num_labelled_calls: int
    """Tool calls that say whether they are consequential."""


def taint(trace: Trace | MeasuredTrace, labels: Labels | None = None) -> Taint:
    """Follow taint through a trace."""
    reading = trace if isinstance(trace, MeasuredTrace) else MeasuredTrace(trace)
    into: dict[str, list[tuple[str, EdgeType]]] = {}
    for edge in reading.trace.edges:
        into.setdefault(edge.dst, []).append((edge.src, edge.type))
    lives = reading.lineage.lives
    flow = Flow(labels, is_agent=lives.__contains__, events=reading.events)
    for event in reading.events:
        flow.step(event, into.get(event.id, ()))
    return _summary(flow, reading.events)


def _summary(flow: Flow, events: tuple[Event, ...]) -> Taint:
    labels = flow.labels
    calls = [event for event in events if event.type == "tool_call"]
    acting = [event for event in calls if _is_consequential(event, labels)]
    results = [event for event in events if event.type == "tool_result"]
    return Taint(
        sources=tuple(flow.sources),
        data=tuple(flow.data),
        control=tuple(flow.control),
        tainted=tuple(e.id for e in events if e.id in flow.data or e.id in flow.control),
        agents=tuple(flow.touched),
        consequential=tuple(event.id for event in acting),
        violations=tuple(event.id for event in acting if _violates(event, flow)),
        endorsed=tuple(flow.endorsed),
        refused_endorsements=tuple(flow.refused),
        num_unlabelled_results=sum(
            event.trusted is None and event.tool not in labels.untrusted for event in results
        ),
        num_labelled_calls=sum(
            "consequential" in event.extra or event.tool in labels.consequential for event in calls
        ),
    )


def _is_consequential(event: Event, labels: Labels) -> bool:
    return event.tool in labels.consequential or bool(event.extra.get("consequential"))


def _violates(event: Event, flow: Flow) -> bool:
    if event.extra.get("allowed"):  # by what a guard asks of such calls, which it holds to as the run goes on
        return False
    if event.id in flow.control:
        return True
    must = event.extra.get("trusted_arguments") or flow.labels.trusted_arguments.get(event.tool or "")
    return bool(must) and event.id in flow.data
