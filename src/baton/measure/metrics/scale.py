"""How large a trace is: the survey's reporting checklist, from the trace alone.

Counts of what is recorded are exact. What needs a measurement that is not in the trace (durations,
tokens, payloads) is None, never zero.
Source: arXiv 2605.02801, reporting checklist: topology and roles, trace scale, reward channels,
finest credit unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.measured import MeasuredTrace
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import Lineage
from baton.trace.graph.timing import Concurrency, critical_path
from baton.trace.outcome import estimated_tokens
from baton.trace.trace import Trace
from baton.trace.vocabulary import CREDIT_UNITS

# Trace-length bands: 10, 100 and 1,000 events, the nearest by ratio (B2 of the survey's benchmark).

BANDS = (10, 100, 1000)
_LAST = {10: 31, 100: 316}
"""Longest of a band: the geometric mean with the next, rounded down."""


def band_of(num_events: int) -> int:
    """The band of a trace with this many events."""
    return next((band for band in BANDS[:-1] if num_events <= _LAST[band]), BANDS[-1])


def by_band(readings: Iterable[MeasuredTrace]) -> dict[int, list[MeasuredTrace]]:
    """Band -> its traces; every band is there."""
    found: dict[int, list[MeasuredTrace]] = {band: [] for band in BANDS}
    for reading in readings:
        found[band_of(len(reading.trace.events))].append(reading)
    return found


class Scale(Struct, frozen=True, kw_only=True):
    """The figures of one trace."""

    trace_id: str
    task_id: str
    topology: str
    finished: bool
    events: int
    events_by_type: dict[str, int]
    edges: int
    calls: int
    messages: int
    tool_calls: int
    decisions: dict[str, int]
    """By kind; events that carry none are not counted."""
    statuses: dict[str, int]
    agents: int | None
    """None where agents spawn each other in a circle; so for the next five."""
    spawned: int | None
    roles: dict[str, int] | None
    """Agents by role, of those whose role is known."""
    max_depth: int | None
    """Spawns between a root and the agent farthest below it."""
    max_concurrency: int | None
    """Most agents busy at one time, by the durations of their events."""
    mean_concurrency: float | None
    tokens: float | None
    estimated_tokens: int | None
    """Of these tokens, the ones that nobody counted."""
    seconds: float | None
    """Wall clock."""
    work_s: float | None
    """T1: all durations together."""
    span_s: float | None
    """Tinf: durations along the critical path."""
    parallelism: float | None
    """T1 / Tinf."""
    critical_path_events: int | None
    reward_channels: tuple[str, ...]
    credit_units: tuple[str, ...]
    """From coarse to fine."""
    finest_credit_unit: str | None
    inferred_share: float | None
    """Events an importer concluded rather than recorded, of all."""
    payloads: int
    payload_bytes: int | None
    """Uncompressed, of the payloads the trace knows of, withheld ones included."""


def scale(trace: Trace) -> Scale:
    """Measure one trace. A trace whose graph is broken is measured as far as it can be."""
    events = trace.events
    types = Counter[str](event.type for event in events)
    units = {credit.unit for credit in trace.credits}
    credit_units = tuple(unit for unit in CREDIT_UNITS if unit in units)
    channels = dict.fromkeys(reward.channel for reward in trace.rewards)
    inferred = sum(event.inferred for event in events)
    return Scale(
        trace_id=trace.trace_id,
        task_id=trace.header.task_id,
        topology=trace.header.topology,
        finished=trace.finished,
        events=len(events),
        events_by_type=_counted(event.type for event in events),
        edges=len(trace.edges),
        calls=len(trace.calls),
        messages=types["message"],
        tool_calls=types["tool_call"],
        decisions=_counted(event.decision for event in events if event.decision != "none"),
        statuses=_counted(event.status for event in events),
        **_team(trace),
        tokens=tokens_of(trace),
        estimated_tokens=None if tokens_of(trace) is None else estimated_tokens(trace),
        seconds=seconds_of(trace),
        **_path(trace),
        reward_channels=tuple(channels),
        credit_units=credit_units,
        finest_credit_unit=credit_units[-1] if credit_units else None,
        inferred_share=inferred / len(events) if events else None,
        payloads=len(trace.payloads),
        payload_bytes=sum(payload.size for payload in trace.payloads.values()) if trace.payloads else None,
    )


def _team(trace: Trace) -> dict[str, Any]:
    names = ("agents", "spawned", "roles", "max_depth", "max_concurrency", "mean_concurrency")
    try:
        lineage = Lineage.of(trace)
    except TraceError:
        return dict.fromkeys(names)
    busy = Concurrency.of(trace, lineage)
    roles = _counted(life.role for life in lineage.lives.values() if life.role is not None)
    spawned = len(lineage) - len(lineage.roots)
    return dict(
        zip(names, (len(lineage), spawned, roles, lineage.max_depth, busy.peak, busy.mean), strict=True)
    )


def _path(trace: Trace) -> dict[str, Any]:
    names = ("work_s", "span_s", "parallelism", "critical_path_events")
    try:
        graph = Graph.of(trace)
        work, found = graph.work, critical_path(graph)
    except TraceError:
        return dict.fromkeys(names)
    if work is None or found is None:
        return dict.fromkeys(names)
    path, span = found
    return dict(zip(names, (work, span, work / span if span else None, len(path)), strict=True))


def tokens_of(trace: Trace) -> float | None:
    """The tokens of the whole trace: as it states them, else those of its events; None: not counted."""
    if "tokens" in trace.costs:
        return trace.costs["tokens"]
    measured = [event.tokens for event in trace.events if event.tokens is not None]
    return sum(measured) if measured else None


def seconds_of(trace: Trace) -> float | None:
    """How long the trace took, by the clock's own figure; without one, until the end of what ended last.

    None: not measured. A source without times leaves every event at 0, which is no time."""
    if "wall_clock_s" in trace.costs:
        return trace.costs["wall_clock_s"]
    if not any(event.t or event.duration_s is not None for event in trace.events):
        return None
    return max(event.t + (event.duration_s or 0.0) for event in trace.events)


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())
