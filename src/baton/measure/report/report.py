"""The whole report over traces: checklist, figures by family and by trace-length band, baselines, failure modes.

Every number stands beside that of a token-matched single agent and token-matched best-of-n where such traces are
given. Invariant: the order in which traces or events are given does not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from baton.measure.figure import Figure, mean, not_measured
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import Family, Metric
from baton.measure.metrics import METRICS, collaboration, debate, overhead, success, votes
from baton.measure.metrics import stop_regret as stopping
from baton.measure.metrics.amplification import naive_ratio
from baton.measure.metrics.delegation import tokens_by_role
from baton.measure.metrics.mast import MastFinding, Mode, failures, rates
from baton.measure.metrics.message_worth import MessageValue, message_values, useful_message_share
from baton.measure.metrics.scale import by_band
from baton.measure.metrics.token_matched import BestOf, best_of, is_matched, matched, token_match
from baton.measure.report.checklist import Checklist, checklist
from baton.measure.safety.summary import SafetyReport
from baton.team.forks import Rerun
from baton.trace.outcome import estimated_tokens

FAMILIES: dict[Family, str] = {
    "E1": "task success",
    "E2": "parallelism efficiency",
    "E3": "collaboration quality",
    "E4": "overhead and error amplification",
    "O5": "stopping",
}
_NO_REPLAY = not_measured("it needs the team to run again; type --replay")
Reruns = Callable[[MeasuredTrace], Rerun | Figure]


class ReportRow(Struct, frozen=True):
    """What a figure is: its family, what it is counted in, and what it says."""

    family: Family
    unit: str
    about: str


class TraceGroup(Struct, frozen=True, kw_only=True):
    """Figures over some traces."""

    traces: int
    estimated: int
    """Traces with tokens that nobody counted."""
    figures: dict[str, Figure]
    failures: dict[Mode, Figure]


class OwnFigure(Struct, frozen=True, kw_only=True):
    """A metric asked for by name, over all traces of the team."""

    figure: Figure
    unit: str
    about: str
    source: str


class MeasureReport(Struct, frozen=True, kw_only=True):
    """All figures of a report, for the whole set of traces and for parts of it."""

    checklist: Checklist
    all: TraceGroup
    bands: dict[int, TraceGroup]
    """The trace-length bands that have traces."""
    single: TraceGroup | None = None
    best_of: BestOf | None = None
    versus_single: dict[str, Figure]
    """The team against the single agent, on the tasks both have."""
    found: dict[str, list[MastFinding]]
    """Trace -> failure modes that fired in it."""
    notes: tuple[str, ...] = ()
    safety: SafetyReport | None = None
    by_topology: dict[str, TraceGroup] = field(default_factory=dict)
    """The same figures by topology, where traces of several are given."""
    delegation: dict[str, Figure] = field(default_factory=dict)
    """Role of the receiver -> tokens per delegation."""
    diversity: dict[int, Figure] = field(default_factory=dict)
    """Round of a debate, from 1 -> the chance that two voters differ."""
    endings: dict[debate.Ending, Figure] = field(default_factory=dict)
    """How debates ended -> their share."""
    own: dict[str, OwnFigure] = field(default_factory=dict)
    """Metrics that were asked for by name, of this or another package."""


_OVER_TRACES: dict[str, tuple[ReportRow, Callable[[Sequence[MeasuredTrace]], Figure]]] = {
    "success": (ReportRow("E1", "", "S: share of traces whose answer is verified right."), success.success),
    "consensus_kappa": (
        ReportRow(
            "E3", "", "Fleiss' kappa: agreement of voters beyond what chance would bring, over traces."
        ),
        debate.consensus_kappa,
    ),
    "voters_n_eff": (
        ReportRow("E3", "voters", "n/(1 + (n - 1) rho) of those whose results were aggregated."),
        votes.voters,
    ),
    "aggregation_efficiency": (
        ReportRow("E3", "", "(Acc - best single)/(Acc_opt - best single)."),
        votes.aggregation_efficiency,
    ),
    "attribution_who": (
        ReportRow("E3", "", "Faults put in whose agent has the lowest credit."),
        lambda readings: collaboration.attribution(readings)[0],
    ),
    "attribution_when": (
        ReportRow("E3", "", "Faults put in whose event has the lowest credit."),
        lambda readings: collaboration.attribution(readings)[1],
    ),
}
_BY_REPLAY = {
    "message_value": ReportRow("E3", "", "V - V(masked): what a message brought, on average."),
    "useful_message_share": ReportRow("E3", "", "Messages worth more than nothing, of all."),
    "premature_stop_rate": ReportRow("O5", "", "Stops after which going on would have been better."),
}


def _rows() -> dict[str, ReportRow]:
    listed = {name: ReportRow(found.family, found.unit, found.formula) for name, found in METRICS.items()}
    every = {name: row for name, (row, _) in _OVER_TRACES.items()} | listed | _BY_REPLAY
    return {name: row for family in FAMILIES for name, row in every.items() if row.family == family}


Rows: Mapping[str, ReportRow] = _rows()
"""Every figure, in the order of a report."""


class Replayed(Struct, frozen=True, kw_only=True):
    """What one trace gave when it was run again."""

    values: tuple[MessageValue, ...] = ()
    rounds: stopping.Rounds | Figure
    why_not: Figure | None = None


def replayed(reading: MeasuredTrace, rerun: Reruns) -> Replayed:
    """Mask every message in turn, and let the stop not take effect."""
    again = rerun(reading)
    if isinstance(again, Figure):
        return Replayed(rounds=again, why_not=again)
    values = tuple(message_values(reading, again))
    return Replayed(values=values, rounds=stopping.try_going_on(reading, again))


def figures_of(
    readings: Sequence[MeasuredTrace], again: Sequence[Replayed] | None = None
) -> dict[str, Figure]:
    """Every figure over these traces; `again`: what they gave when they were run again."""
    found = {name: function(readings) for name, (_, function) in _OVER_TRACES.items()}
    for name, one in METRICS.items():
        found[name] = mean((one(reading) for reading in readings), one.bounds)
    found |= dict.fromkeys(_BY_REPLAY, _NO_REPLAY) if again is None else _by_replay(again)
    return {name: found[name] for name in Rows}


def _by_replay(again: Sequence[Replayed]) -> dict[str, Figure]:
    values = [value for one in again for value in one.values]
    reasons = [one.why_not for one in again if one.why_not is not None]
    if not values and reasons:
        worth = useful = mean(reasons)
    else:
        worth = mean([one.value for one in values] or [not_measured("no message arrived")])
        useful = useful_message_share(values)
    return {
        "message_value": worth,
        "useful_message_share": useful,
        "premature_stop_rate": stopping.premature_rate(one.rounds for one in again),
    }


def measure(
    team: Sequence[MeasuredTrace],
    *,
    single: Sequence[MeasuredTrace] = (),
    samples: Sequence[MeasuredTrace] = (),
    rerun: Reruns | None = None,
    safety: SafetyReport | None = None,
    metrics: Sequence[Metric] = (),
) -> MeasureReport:
    """The report. `single`: single-agent traces; `samples`: those to take best-of-n from, several a task.

    `metrics` are worked out beside those of the survey.
    """
    # Traces in one order, whatever order they were given in: sums of floats show it.
    team, single, samples = (sorted(side, key=_order) for side in (team, single, samples))
    again = None if rerun is None else {id(reading): replayed(reading, rerun) for reading in team}
    notes: list[str] = []
    versus: dict[str, Figure] = {}
    if single:
        ours, alone, shared = matched(team, single)
        if not shared:
            notes.append(
                "the single agent's traces share no task with the team's: the comparison is unpaired"
            )
        versus = _versus(ours, alone)
        if not is_matched(versus["token_match"]):
            notes.append("the single agent is not token-matched: it did not spend what the team spent")
    estimated = sum(estimated_tokens(reading.trace) > 0 for reading in (*team, *single))
    if estimated:
        notes.append(
            f"tokens of {estimated:,} of {len(team) + len(single):,} traces are estimates: nobody counted them"
        )
    # Before the notes are taken: it may add one.
    by_topology = _by_topology(team, again, notes)
    return MeasureReport(
        checklist=checklist([reading.trace for reading in team]),
        all=_group(team, again),
        bands={band: _group(some, again) for band, some in by_band(team).items() if some},
        single=_group(single, None) if single else None,
        by_topology=by_topology,
        delegation=tokens_by_role(team),
        diversity=debate.diversity_by_round(team),
        endings=_endings(team),
        best_of=best_of(team, samples) if samples else None,
        versus_single=versus,
        found={r.trace.trace_id: fired for r in team if (fired := [one for one in failures(r) if one.fired])},
        notes=tuple(notes),
        safety=safety,
        own={one.name: _own(one, team) for one in metrics},
    )


def _own(one: Metric, team: Sequence[MeasuredTrace]) -> OwnFigure:
    found = mean((one(reading) for reading in team), one.bounds)
    return OwnFigure(figure=found, unit=one.unit, about=one.formula, source=one.source)


def _order(reading: MeasuredTrace) -> tuple[str, str, int]:
    trace = reading.trace
    return trace.trace_id, trace.header.task_id, len(trace.events)


def _group(readings: Sequence[MeasuredTrace], again: Mapping[int, Replayed] | None) -> TraceGroup:
    run_again = None if again is None else [again[id(reading)] for reading in readings]
    return TraceGroup(
        traces=len(readings),
        estimated=sum(estimated_tokens(reading.trace) > 0 for reading in readings),
        figures=figures_of(readings, run_again),
        failures=rates(readings),
    )


def _by_topology(
    team: Sequence[MeasuredTrace], again: Mapping[int, Replayed] | None, notes: list[str]
) -> dict[str, TraceGroup]:
    """Figures by topology where there are several; says so where they did not work on the same tasks."""
    found: dict[str, list[MeasuredTrace]] = {}
    for reading in team:
        found.setdefault(reading.trace.header.topology, []).append(reading)
    if len(found) < 2:
        return {}
    if len({frozenset(reading.trace.header.task_id for reading in some) for some in found.values()}) > 1:
        notes.append("the topologies did not work on the same tasks: their figures compare tasks as well")
    return {topology: _group(some, again) for topology, some in sorted(found.items())}


def _endings(team: Sequence[MeasuredTrace]) -> dict[debate.Ending, Figure]:
    found = debate.endings(team)
    return found if any(figure.value is not None for figure in found.values()) else {}


def _versus(team: Sequence[MeasuredTrace], single: Sequence[MeasuredTrace]) -> dict[str, Figure]:
    found = {f"overhead_{name}": overhead.overhead(team, single, name) for name in overhead.RESOURCES}
    found["naive_error_ratio"] = naive_ratio(team, single)
    found["coordination_efficiency"] = _efficiency(team, single)
    found["speed_up"] = _speed_up(team, single)
    found["token_match"] = token_match(team, single)
    return found


def _efficiency(team: Sequence[MeasuredTrace], single: Sequence[MeasuredTrace]) -> Figure:
    won, more = success.success(team), overhead.overhead(team, single, "turns")
    if won.value is None or more.value is None:
        return mean([won if won.value is None else more])
    return Figure(overhead.coordination_efficiency(won.value, more.value + 1, 1.0), None, None, won.n)


def _speed_up(team: Sequence[MeasuredTrace], single: Sequence[MeasuredTrace]) -> Figure:
    """Seconds of the single agent over those of the team."""
    more = overhead.overhead(single, team, "seconds")
    if more.value is None:
        return more
    low, high = (None if end is None else end + 1 for end in (more.low, more.high))
    return Figure(more.value + 1, low, high, more.n)
