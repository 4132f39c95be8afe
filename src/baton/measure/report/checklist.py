"""The survey's reporting checklist, filled in from traces.

Topology and roles (spawn and despawn, fixed or dynamic) · trace scale · reward channels and whether they are
annealed · finest credit unit · safety instrumentation. Source: arXiv 2605.02801, reporting checklist.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from baton.measure.figure import Figure, mean, not_measured
from baton.measure.metrics.scale import Scale, scale
from baton.trace.trace import Trace, meta_table
from baton.trace.vocabulary import CREDIT_UNITS

_SCALE = ("events", "messages", "tool_calls", "spawned", "seconds", "tokens")


class Safety(Struct, frozen=True, kw_only=True):
    """What the traces carry for a safety analysis."""

    labelled_results: int
    """Tool results that say whether they are trusted."""
    tool_results: int
    untrusted_results: int
    labelled_calls: int
    """Tool calls that say whether they are consequential."""
    endorsements: int
    safety_events: int
    human_interventions: int
    budgeted: int
    """Traces whose run had limits."""


class Checklist(Struct, frozen=True, kw_only=True):
    """One row of a paper's table."""

    traces: int
    tasks: int
    topologies: dict[str, int]
    """Traces by topology."""
    roles: dict[str, int] | None
    """Agents by role; None: no role is recorded."""
    spawns: int
    despawns: int
    team_size: str
    """dynamic, fixed or not measured."""
    scale: dict[str, Figure]
    estimated: int = 0
    """Traces with tokens that nobody counted."""
    reward_channels: dict[str, str]
    """Channel -> annealed, constant or not recorded."""
    finest_credit_unit: str | None
    safety: Safety


def checklist(traces: Sequence[Trace]) -> Checklist:
    """Fill it in."""
    scales = [scale(trace) for trace in traces]
    roles = Counter[str]()
    for one in scales:
        roles.update(one.roles or {})
    events = Counter(event.type for trace in traces for event in trace.events)
    units = {one.finest_credit_unit for one in scales}
    finest = [unit for unit in CREDIT_UNITS if unit in units]
    return Checklist(
        traces=len(traces),
        tasks=len({trace.header.task_id for trace in traces}),
        topologies=_counted(Counter(one.topology for one in scales)),
        roles=_counted(roles) or None,
        spawns=events["spawn"],
        despawns=events["despawn"],
        team_size=_team_size(scales),
        estimated=sum(bool(one.estimated_tokens) for one in scales),
        scale={name: _spread(name, scales) for name in _SCALE},
        reward_channels=_channels(traces),
        finest_credit_unit=finest[-1] if finest else None,
        safety=_safety(traces),
    )


def _team_size(scales: Sequence[Scale]) -> str:
    """Dynamic where a trace spawns; fixed where all the traces have the same agents from the start."""
    sizes = {one.agents for one in scales}
    if None in sizes:
        return "not measured"
    return "dynamic" if any(one.spawned for one in scales) else "fixed"


def _spread(name: str, scales: Sequence[Scale]) -> Figure:
    values = [getattr(one, name) for one in scales]
    known = [float(value) for value in values if value is not None]
    return mean(known, (0.0, float("inf"))) if known else not_measured("no trace records it")


def _channels(traces: Sequence[Trace]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for trace in traces:
        for reward in trace.rewards:
            found.setdefault(reward.channel, set()).add(_annealing(reward.by))
    return {
        channel: next(word for word in ("annealed", "constant", "not recorded") if word in words)
        for channel, words in sorted(found.items())
    }


def _annealing(by: str | None) -> str:
    """Reward rules write their settings into `by`; a weight that is a schedule is one that moves."""
    try:
        settings, _ = json.JSONDecoder().raw_decode(by or "")
    except ValueError:
        return "not recorded"
    if not isinstance(settings, dict) or "rule" not in settings:
        return "not recorded"
    return "annealed" if _scheduled(settings) else "constant"


def _scheduled(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "schedule" in value or any(_scheduled(inner) for inner in value.values())
    return isinstance(value, list) and any(_scheduled(inner) for inner in value)


def _safety(traces: Sequence[Trace]) -> Safety:
    events = [event for trace in traces for event in trace.events]
    results = [event for event in events if event.type == "tool_result"]
    return Safety(
        labelled_results=sum(event.trusted is not None for event in results),
        tool_results=len(results),
        untrusted_results=sum(event.trusted is False for event in results),
        labelled_calls=sum("consequential" in e.extra for e in events if e.type == "tool_call"),
        endorsements=sum("endorses" in event.extra for event in events),
        safety_events=sum(event.type == "safety_event" for event in events),
        human_interventions=sum(event.type == "human_intervention" for event in events),
        budgeted=sum(_has_limits(trace) for trace in traces),
    )


def _has_limits(trace: Trace) -> bool:
    return any(value is not None for value in meta_table(trace.header, "run", "limits").values())


def _counted(words: Counter[str]) -> dict[str, int]:
    """Most frequent first, then by name: not by which trace came first."""
    return dict(sorted(words.items(), key=lambda item: (-item[1], item[0])))
