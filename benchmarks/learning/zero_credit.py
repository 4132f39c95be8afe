"""How many events that agents chose have no credit, or a credit of exactly zero, and why.

The price of an invalid answer is no credit: it is the same under every arm and is left out. Events that no call said
(what a script or a budget did) are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from baton.credit.core.covering import Covering
from baton.trace.records import ROUNDING, Credit, Event
from baton.trace.trace import Trace

PRICE = "invalid"
"""Names the credit that is a price."""
REASONS = ("alike", "invalid", "forced", "other")
"""The first that holds: every return of the group is the same, so that nothing can be told; the answer could not be
carried out; there was one option; none of these."""
Counts = dict[str, int]


def counted(groups: Iterable[Sequence[Trace]], returns: Any) -> Counts:
    """Of the traces of a step, in the groups that were compared: `events`, and those without credit by reason."""
    return counted_of(((group, [trace.credits for trace in group]) for group in groups), returns)


def counted_of(groups: Iterable[tuple[Sequence[Trace], Sequence[Sequence[Credit]]]], returns: Any) -> Counts:
    """The same of credits that do not stand on the traces."""
    found = dict.fromkeys(("events", *REASONS), 0)
    for traces, credits in groups:
        values = [returns(trace) for trace in traces]
        alike = max(values) - min(values) <= ROUNDING
        for trace, mine in zip(traces, credits, strict=True):
            for event, has in _events(trace, mine):
                found["events"] += 1
                if not has:
                    found[_reason(event, alike)] += 1
    return found


def added(counts: Iterable[Counts]) -> Counts:
    """The sum of several steps'."""
    total = dict.fromkeys(("events", *REASONS), 0)
    for each in counts:
        for key, number in each.items():
            total[key] += number
    return total


def share(counts: Counts, reason: str | None = None) -> float:
    """Of all events; None: for whatever reason."""
    zero = sum(counts[name] for name in REASONS) if reason is None else counts[reason]
    return zero / max(1, counts["events"])


def _events(trace: Trace, credits: Sequence[Credit]) -> Iterable[tuple[Event, bool]]:
    covering = Covering(trace)
    credited = {
        place
        for credit in credits
        if credit.estimator != PRICE and abs(credit.value) > ROUNDING
        for place in covering.of(credit)
    }
    for place in covering.chosen:
        if trace.events[place].call is not None:
            yield trace.events[place], place in credited


def _reason(event: Event, alike: bool) -> str:
    if alike:
        return "alike"
    if event.status == "invalid":
        return "invalid"
    return "forced" if event.options is not None and len(event.options) == 1 else "other"
