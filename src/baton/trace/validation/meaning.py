"""Meaning: could a team have done this, and do the figures say what happened?"""

from __future__ import annotations

from math import isfinite

import numpy as np

from baton.errors import CorruptError
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.validation.lives import check_lives
from baton.trace.validation.parts import Indexes, Parts
from baton.trace.validation.problem import shown
from baton.trace.validation.targets import check_targets

_TOLERANCE = 1e-6
_ANSWERS = frozenset({"return", "tool_dependency"})


def check_meaning(parts: Parts) -> None:
    check_lives(parts)
    _check_answers(parts)
    _check_forced_stops(parts)
    _check_propensities(parts)
    _check_costs(parts)
    _check_payloads(parts)
    check_targets(parts)


def _check_answers(parts: Parts) -> None:
    """A result answers the tool_calls of its tool that point to it: by return or tool_dependency
    edges, else by any edge that is not merely temporal. What nature drew (`draw` in its extra) answers the
    choice that an edge comes from; what a task hands over of strangers' words (`given`) answers nothing."""
    count = len(parts.events)
    call, result = _answers(parts)
    answered = np.zeros(count, dtype=np.bool_)
    answered[result] = True
    excused = {edge.dst for edge in parts.edges if edge.src in parts.broken} if parts.broken else set()
    events, results = parts.events, parts.of_type("tool_result")
    has_draws = any("draw" in events[index].extra for index in results.tolist())
    caused = {edge.dst for edge in parts.edges if edge.type == "causal"} if has_draws else set()
    for index in results[~answered[results]].tolist():
        event = events[index]
        if ("draw" in event.extra and event.id in caused) or event.extra.get("given") is True:
            continue
        if event.status != "invalid" and event.id not in excused and not parts.lost:
            was, expected = "no edge from one", f"an edge from a tool_call of {event.tool or 'its tool'}"
            parts.report("meaning/result-without-call", "event", index, None, was, expected)
    real = np.array([events[index].status != "cancelled" for index in result.tolist()], dtype=np.bool_)
    num_results = np.bincount(call[real], minlength=count)
    for index in np.flatnonzero(num_results > 1).tolist():
        was = f"{num_results[index]} tool_results"
        parts.report("meaning/answered-twice", "event", index, None, was, "at most 1")


def _answers(parts: Parts) -> tuple[Indexes, Indexes]:
    """Pairs of a tool_call and the tool_result that answers it, as indexes."""
    count, tools = len(parts.events), parts.column("tool")
    edges = [
        index
        for index in parts.edges_between("tool_call", "tool_result")
        if parts.edges[index].type != "temporal"
    ]
    call, result = parts.src[edges], parts.dst[edges]
    same = [
        a == b or a is None or b is None
        for a, b in ((tools[a], tools[b]) for a, b in zip(call.tolist(), result.tolist(), strict=True))
    ]
    plain = [parts.edges[index].type in _ANSWERS for index in edges]
    match, is_plain = np.array(same, dtype=np.bool_), np.array(plain, dtype=np.bool_)
    has_plain = np.zeros(count, dtype=np.bool_)
    has_plain[result[match & is_plain]] = True
    match &= is_plain | ~has_plain[result]
    pairs = np.unique(call[match] * count + result[match])  # two edges between the same two are one answer
    return pairs // max(count, 1), pairs % max(count, 1)


def _check_forced_stops(parts: Parts) -> None:
    """A stop that no call said and no draw chose, after a safety_event that reports a spent budget."""
    spent = [
        parts.seq[index]
        for index in parts.of_type("safety_event").tolist()
        if parts.events[index].extra.get("budget") is not None
    ]
    if not spent:
        return
    first = min(spent)
    for index in parts.of_type("orchestrator_decision").tolist():
        event = parts.events[index]
        if (
            event.decision == "stop"
            and event.status not in NO_EFFECT
            and event.status != "forced"
            and event.call is None
            and event.propensity is None
            and parts.seq[index] > first
        ):
            was = f"status {event.status!r}"
            expected = "status 'forced': a budget ran out and nobody chose to stop"
            parts.report("meaning/unmarked-forced-stop", "event", index, "status", was, expected)


def _check_propensities(parts: Parts) -> None:
    propensities = parts.column("propensity")
    stated = [value for value in propensities if value is not None]
    if stated and not (min(stated) > 0 and max(stated) <= 1):
        for index in parts.having("propensity"):
            value = propensities[index]
            if not 0 < value <= 1 and isfinite(value):
                code, expected = "meaning/propensity-range", "0 < propensity <= 1"
                parts.report(code, "event", index, "propensity", shown(value), expected)
    distributions = parts.column("option_propensities")
    for index in parts.having("option_propensities"):
        _check_distribution(parts, index, propensities[index], distributions[index])


def _check_distribution(parts: Parts, index: int, propensity: float | None, whole: tuple[float, ...]) -> None:
    if not all(map(isfinite, whole)):
        return  # said at the level of shape
    name = "option_propensities"
    for option, value in enumerate(whole):
        if not 0 <= value <= 1:
            code, expected = "meaning/propensity-range", "0 <= propensity <= 1"
            parts.report(code, "event", index, f"{name}[{option}]", shown(value), expected)
    if sum(whole) > 1 + _TOLERANCE and max(whole) <= 1:
        was = f"a sum of {sum(whole):.9g}"
        parts.report("meaning/propensities-sum", "event", index, name, was, "at most 1")
    choice = parts.events[index].choice
    if propensity is None or choice is None or not 0 <= choice < len(whole):
        return
    if abs(propensity - whole[choice]) > _TOLERANCE:
        was, expected = shown(propensity), f"{whole[choice]!r}, as option_propensities[{choice}] has it"
        parts.report("meaning/propensity-mismatch", "event", index, "propensity", was, expected)


def _check_costs(parts: Parts) -> None:
    """Only what both sides state is compared, and only in a trace whose events are all there."""
    if parts.end is None or parts.lost or parts.num_broken.get("event"):
        return
    costs = parts.end.costs
    sums: dict[str, float] = {
        "tool_calls": len(parts.of_type("tool_call")),
        "messages": len(parts.of_type("message")),
    }
    tokens = parts.column("tokens")
    if tokens.count(None) < len(tokens):
        sums["tokens"] = sum(filter(None, tokens))
    for name, total in sums.items():
        if name in costs and abs(costs[name] - total) > _TOLERANCE:
            _report_cost(parts, "meaning/cost-mismatch", name, f"{total:,}, the sum over its events")
    durations = [duration_s or 0.0 for duration_s in parts.column("duration_s")]
    with np.errstate(over="ignore"):
        ends = np.array(parts.column("t"), dtype=np.float64) + np.array(durations, dtype=np.float64)
    last = float(ends[np.isfinite(ends)].max(initial=0.0))
    if costs.get("wall_clock_s", last) < last - _TOLERANCE * max(1.0, last):
        expected = f"at least {last!r}, its last event's end"
        _report_cost(parts, "meaning/wall-clock-short", "wall_clock_s", expected)


def _report_cost(parts: Parts, code: str, name: str, expected: str) -> None:
    value = parts.end.costs[name] if parts.end else None
    parts.found.add(code, "end", shown(value), expected, position=parts.end_line, field=f"costs.{name}")


def _check_payloads(parts: Parts) -> None:
    for index, payload in enumerate(parts.payloads):
        if parts.payload_keys is not None and parts.payload_keys[index] != payload.ref:
            was, expected = f"filed under {parts.payload_keys[index]}", "filed under its own address"
            parts.report("meaning/payload-mismatch", "payload", index, "ref", was, expected)
        try:
            payload.content()
        except CorruptError as error:
            expected = "the content that its address and size were made from"
            parts.report("meaning/payload-mismatch", "payload", index, "data", str(error), expected)
