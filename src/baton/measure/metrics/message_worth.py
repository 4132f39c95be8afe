"""What messages were worth: V - V(replay with the message masked).

A message is masked by not being delivered; a return, which cannot be left out, by being empty. The useful
share is the fraction worth more than its cost: its tokens at a price, in units of the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from baton.errors import BatonError, TraceError
from baton.measure.figure import Figure, mean, not_measured, proportion
from baton.measure.measured import MeasuredTrace
from baton.team.forks import Rerun
from baton.team.intervene import Drop, Intervention, Replace
from baton.trace.records import Event

ValueOf = Callable[[MeasuredTrace], float]


class MessageValue(Struct, frozen=True, kw_only=True):
    """One message."""

    event: str
    value: Figure
    """V - V(masked)."""
    tokens: int | None
    """What was charged to it; None: it was said along with something else, or not counted."""


def message_values(
    reading: MeasuredTrace, rerun: Rerun, *, value: ValueOf | None = None, replicates: int = 1
) -> list[MessageValue]:
    """Every message and return of the trace that arrived, each masked in turn."""
    return [
        MessageValue(
            event=event.id,
            value=message_value(reading, event, rerun, value=value, replicates=replicates),
            tokens=event.tokens,
        )
        for event in reading.events
        if event.type in ("message", "return") and event.decision != "delegate" and event.status == "ok"
    ]


def message_value(
    reading: MeasuredTrace, event: Event, rerun: Rerun, *, value: ValueOf | None = None, replicates: int = 1
) -> Figure:
    """V - V(masked), over as many continuations as asked for; the first draws as the recorded run drew."""
    mask: Intervention = Replace(event.id, "") if event.type == "return" else Drop(event.id)
    worth = (lambda other: other.outcome) if value is None else value
    try:
        here = worth(reading)
        masked = [
            worth(MeasuredTrace(rerun(reading.trace, [mask], k), reading.gold)) for k in range(replicates)
        ]
    except BatonError as error:
        return not_measured(str(error))
    return mean(here - there for there in masked)


def useful_message_share(values: Sequence[MessageValue], price_per_token: float = 0.0) -> Figure:
    """Messages worth more than they cost, of those whose value is known."""
    if not values:
        return not_measured("no message arrived")
    known = [found for found in values if found.value.value is not None]
    if not known:
        return mean(found.value for found in values)
    if price_per_token and all(found.tokens is None for found in known):
        raise TraceError("a price per token needs messages whose tokens were counted.")
    worth = sum((found.value.value or 0.0) > price_per_token * (found.tokens or 0) for found in known)
    return proportion(worth, len(known))
