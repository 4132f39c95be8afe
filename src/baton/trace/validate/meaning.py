"""Meaning: could a team have done this, and do the figures say what happened?"""

from __future__ import annotations

from collections import Counter
from math import isfinite

import numpy as np

from baton.errors import CorruptError
from baton.trace.event import Event
from baton.trace.validate.lives import NO_EFFECT, check_lives
from baton.trace.validate.parts import Parts
from baton.trace.validate.problem import Found, shown
from baton.trace.validate.targets import check_targets

__all__ = ["check_meaning"]

_TOLERANCE = 1e-6
_ANSWERS = frozenset({"return", "tool_dependency"})


def check_meaning(parts: Parts, found: Found) -> None:
    check_lives(parts, found)
    _check_answers(parts, found)
    _check_forced_stops(parts, found)
    _check_propensities(parts, found)
    _check_costs(parts, found)
    _check_payloads(parts, found)
    check_targets(parts, found)


def _check_answers(parts: Parts, found: Found) -> None:
    """A result answers the tool_calls that point to it: by return or tool_dependency edges, else by
    any edge that is not merely temporal."""
    events = parts.events
    types = parts.column("type")
    is_call = np.fromiter((type_ == "tool_call" for type_ in types), dtype=np.bool_, count=len(types))
    is_result = np.fromiter((type_ == "tool_result" for type_ in types), dtype=np.bool_, count=len(types))
    whole = np.flatnonzero((parts.src >= 0) & (parts.dst >= 0))
    answered: dict[int, dict[bool, set[int]]] = {}
    for index in whole[is_call[parts.src[whole]] & is_result[parts.dst[whole]]].tolist():
        kind = parts.edges[index].type
        call, result = int(parts.src[index]), int(parts.dst[index])
        if kind != "temporal" and _same_tool(events[call], events[result]):
            answered.setdefault(result, {True: set(), False: set()})[kind in _ANSWERS].add(call)
    maybe = {edge.dst for edge in parts.edges if edge.src in parts.broken} if parts.broken else set()
    num_answers: Counter[int] = Counter()
    for result in np.flatnonzero(is_result).tolist():
        event = events[result]
        sources = answered.get(result)
        if sources is None:
            if event.status != "invalid" and event.id not in maybe:
                tool = f"a tool_call of {event.tool}" if event.tool else "a tool_call"
                was, expected = "no edge from one", f"an edge from {tool}"
                parts.report(
                    found, "meaning/result-without-call", "event", result, None, was=was, expected=expected
                )
        elif event.status != "cancelled":
            num_answers.update(sources[True] or sources[False])
    for call, num in num_answers.items():
        if num > 1:
            parts.report(
                found,
                "meaning/answered-twice",
                "event",
                call,
                None,
                was=f"{num} tool_results",
                expected="at most 1",
            )


def _same_tool(call: Event, result: Event) -> bool:
    return call.tool is None or result.tool is None or call.tool == result.tool


def _check_forced_stops(parts: Parts, found: Found) -> None:
    """A stop that no call said and no draw chose, after a safety_event that reports a spent budget."""
    spent = [
        int(parts.seq[index])
        for index, event in enumerate(parts.events)
        if event.type == "safety_event" and event.extra.get("budget") is not None
    ]
    if not spent:
        return
    first = min(spent)
    for index, event in enumerate(parts.events):
        if (
            event.decision == "stop"
            and event.status not in NO_EFFECT
            and event.status != "forced"
            and event.call is None
            and event.propensity is None
            and parts.seq[index] > first
        ):
            was, expected = (
                f"status {event.status!r}",
                "status 'forced': a budget ran out and nobody chose to stop",
            )
            parts.report(
                found, "meaning/unmarked-forced-stop", "event", index, "status", was=was, expected=expected
            )


def _check_propensities(parts: Parts, found: Found) -> None:
    propensities = parts.column("propensity")
    distributions = parts.column("option_propensities")
    for index, (propensity, whole) in enumerate(zip(propensities, distributions, strict=True)):
        if propensity is not None and not 0 < propensity <= 1 and isfinite(propensity):
            was, expected = shown(propensity), "0 < propensity <= 1"
            parts.report(
                found, "meaning/propensity-range", "event", index, "propensity", was=was, expected=expected
            )
        if whole is not None:
            _check_distribution(parts, found, index, propensity, whole)


def _check_distribution(
    parts: Parts, found: Found, index: int, propensity: float | None, whole: tuple[float, ...]
) -> None:
    if not all(map(isfinite, whole)):
        return  # said at the level of shape
    name = "option_propensities"
    for option, value in enumerate(whole):
        if not 0 <= value <= 1:
            was, expected = shown(value), "0 <= propensity <= 1"
            where = f"{name}[{option}]"
            parts.report(found, "meaning/propensity-range", "event", index, where, was=was, expected=expected)
    if sum(whole) > 1 + _TOLERANCE and max(whole) <= 1:
        was = f"a sum of {sum(whole):.9g}"
        parts.report(found, "meaning/propensities-sum", "event", index, name, was=was, expected="at most 1")
    choice = parts.events[index].choice
    if propensity is None or choice is None or not 0 <= choice < len(whole):
        return
    if abs(propensity - whole[choice]) > _TOLERANCE:
        was, expected = shown(propensity), f"{whole[choice]!r}, as option_propensities[{choice}] has it"
        parts.report(
            found, "meaning/propensity-mismatch", "event", index, "propensity", was=was, expected=expected
        )


def _check_costs(parts: Parts, found: Found) -> None:
    """Only what both sides state is compared, and only in a trace whose events are all there."""
    if parts.end is None or parts.num_broken.get("event"):
        return
    costs, types = parts.end.costs, Counter(parts.column("type"))
    sums: dict[str, float] = {"tool_calls": types["tool_call"], "messages": types["message"]}
    tokens = [value for value in parts.column("tokens") if value is not None]
    if tokens:
        sums["tokens"] = sum(tokens)
    for name, total in sums.items():
        if name in costs and abs(costs[name] - total) > _TOLERANCE:
            expected = f"{total:,}, the sum over its events"
            _report_cost(parts, found, "meaning/cost-mismatch", name, expected)
    ends = [event.t + (event.duration_s or 0.0) for event in parts.events]
    last = max(filter(isfinite, ends), default=0.0)
    if costs.get("wall_clock_s", last) < last - _TOLERANCE * max(1.0, last):
        _report_cost(
            parts,
            found,
            "meaning/wall-clock-short",
            "wall_clock_s",
            f"at least {last!r}, its last event's end",
        )


def _report_cost(parts: Parts, found: Found, code: str, name: str, expected: str) -> None:
    value = parts.end.costs[name] if parts.end else None
    found.add(
        code,
        record="end",
        position=parts.end_line,
        field=f"costs.{name}",
        found=shown(value),
        expected=expected,
    )


def _check_payloads(parts: Parts, found: Found) -> None:
    for index, payload in enumerate(parts.payloads):
        if parts.payload_keys is not None and parts.payload_keys[index] != payload.ref:
            was, expected = f"filed under {parts.payload_keys[index]}", "filed under its own address"
            parts.report(
                found, "meaning/payload-mismatch", "payload", index, "ref", was=was, expected=expected
            )
        try:
            payload.content()
        except CorruptError as error:
            was, expected = str(error), "the content that its address and size were made from"
            parts.report(
                found, "meaning/payload-mismatch", "payload", index, "data", was=was, expected=expected
            )
