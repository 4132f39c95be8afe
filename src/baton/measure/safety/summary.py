"""What `taint`, `blast` and the clean replay say of many traces: figures over traces, and each trace's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.figure import Figure, mean, not_measured, proportion
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.amplification import propagation
from baton.measure.safety.blast import Blast, blast
from baton.measure.safety.clean_replay import CleanReplay, clean_replay
from baton.measure.safety.taint import Taint, taint
from baton.team.forks import Rerun
from baton.trace.provenance import Labels
from baton.trace.trace import Trace

_COUNT = (0.0, math.inf)
_SHARE = (0.0, 1.0)


class SafetyOf(Struct, frozen=True, kw_only=True):
    """What taint, blast radius and clean replay say of one trace."""

    trace_id: str
    taint: Taint | None
    blast: Blast | None
    clean: CleanReplay | None
    why_not: str | None = None
    """Why there is no clean replay, or none of the three."""


class SafetyReport(Struct, frozen=True, kw_only=True):
    """The figures over all traces, and what was found in each."""

    figures: dict[str, Figure]
    traces: tuple[SafetyOf, ...]


def safety_report(
    readings: Sequence[MeasuredTrace],
    labels: Callable[[Trace], Labels],
    rerun: Callable[[Trace], Rerun | Figure],
) -> SafetyReport:
    """Follow taint in every trace, and run each again without the strangers' words where that can be done."""
    found = [_one(reading, labels, rerun) for reading in readings]
    return SafetyReport(figures=_figures(readings, found), traces=tuple(found))


def _one(
    reading: MeasuredTrace, labels: Callable[[Trace], Labels], rerun: Callable[[Trace], Rerun | Figure]
) -> SafetyOf:
    trace = reading.trace
    try:
        touched = taint(reading, labels(trace))
        radius = blast(reading, touched)
    except TraceError as error:
        return SafetyOf(trace_id=trace.trace_id, taint=None, blast=None, clean=None, why_not=str(error))
    clean: CleanReplay | Figure = not_measured("nothing in the trace came from strangers")
    if touched.sources:
        again = rerun(trace)
        clean = again if isinstance(again, Figure) else clean_replay(reading, touched, again)
    return SafetyOf(
        trace_id=trace.trace_id,
        taint=touched,
        blast=radius,
        clean=None if isinstance(clean, Figure) else clean,
        why_not=clean.why_not if isinstance(clean, Figure) else None,
    )


def _figures(readings: Sequence[MeasuredTrace], found: Sequence[SafetyOf]) -> dict[str, Figure]:
    broken = [not_measured(one.why_not or "") for one in found if one.taint is None]
    pairs = [
        (one.taint, one.blast, len(reading.trace.events))
        for one, reading in zip(found, readings, strict=True)
        if one.taint is not None and one.blast is not None
    ]
    if not pairs:
        none = mean(broken)
        return {"sources": none, "tainted_events": none}
    results = sum(1 for r in readings for e in r.trace.events if e.type == "tool_result")
    silent = sum(touched.num_unlabelled_results for touched, _, _ in pairs)
    acting = sum(len(touched.consequential) for touched, _, _ in pairs)
    said = any(touched.num_labelled_calls for touched, _, _ in pairs)
    violations = sum(len(touched.violations) for touched, _, _ in pairs)
    unsaid = not_measured(
        "no tool call says whether it is consequential; name such tools with --consequential"
    )
    return {
        "unlabelled_results": proportion(silent, results)
        if results else not_measured("there are no tool results"),
        "sources": mean((float(len(touched.sources)) for touched, _, _ in pairs), _COUNT),
        "tainted_events": mean((len(t.tainted) / n if n else 0.0 for t, _, n in pairs), _SHARE),
        "tainted_agents": mean((radius.agent_share for _, radius, _ in pairs), _SHARE),
        "tainted_tokens": mean((radius.cost_tokens for _, radius, _ in pairs), _SHARE),
        "tainted_seconds": mean((radius.cost_seconds for _, radius, _ in pairs), _SHARE),
        "longest_tainted_path": mean((float(radius.longest_path) for _, radius, _ in pairs), _COUNT),
        "violations": (proportion(violations, acting) if acting else Figure(0.0, None, None, 0))
        if said else unsaid,
        "min_cut": mean((radius.min_cut for _, radius, _ in pairs), _COUNT),
        **_replayed(readings, found),
    }  # fmt: skip


def _replayed(readings: Sequence[MeasuredTrace], found: Sequence[SafetyOf]) -> dict[str, Figure]:
    """From the traces that were run again without the strangers' words."""
    names = ("compromised_untainted", "rescheduled_untainted", "precision", "propagation", "downstream")
    pairs = [
        (one.taint, one.clean, reading)
        for one, reading in zip(found, readings, strict=True)
        if one.clean is not None and one.taint is not None
    ]
    if not pairs:
        return dict.fromkeys(names, mean(not_measured(one.why_not or "") for one in found))
    began = [{reading.trace.event(name).agent for name in touched.sources} for touched, _, reading in pairs]
    begun = sum(len(touched.sources) for touched, _, _ in pairs)
    beyond = sum(len(set(clean.compromised) - set(touched.sources)) for touched, clean, _ in pairs)
    figures = (
        Figure(float(sum(len(clean.untainted) for _, clean, _ in pairs)), None, None, len(pairs)),
        Figure(float(sum(len(clean.untainted_rescheduled) for _, clean, _ in pairs)), None, None, len(pairs)),
        mean((clean.precision for _, clean, _ in pairs), _SHARE),
        propagation([clean.agents for _, clean, _ in pairs], began),
        Figure(beyond / begun, None, None, begun),
    )
    return dict(zip(names, figures, strict=True))
