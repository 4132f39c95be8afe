"""Where a team could have stopped: which options stop, how likely each was, and what was known then.

In a game to go on is a decision about stopping too, so it is the option that tells a stop, not the event's decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from baton.credit.acts import chosen
from baton.credit.contract import CreditError
from baton.team.action import VERBS, Action, Stop, Wait
from baton.team.aggregate import Claim, aggregator
from baton.team.surface import Lines, Parsed, Tools
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = [
    "Stops",
    "action_of",
    "counts",
    "decisions_of",
    "known",
    "likeliest_onward",
    "majority_draft",
    "stop_chance",
    "stop_options",
    "stop_shares",
    "stopped",
    "wait_for_those_left",
]

Stops = Callable[[Event], Sequence[str]]
"""Of an event's options, those that stop."""
_VERBS = frozenset(VERBS)


@lru_cache(4096)
def action_of(option: str) -> Action | None:
    """What an option says, on whichever surface it is written. None: it is no action of either."""
    surface = Tools() if "<tool_call>" in option else Lines()
    item = surface.parse(option, _VERBS)[0]
    return item.action if isinstance(item, Parsed) else None


def stop_options(event: Event) -> tuple[str, ...]:
    """Those written with the verb stop."""
    return tuple(option for option in event.options or () if isinstance(action_of(option), Stop))


def stopped(event: Event, stops: Stops = stop_options) -> bool:
    """Whether its agent chose to stop."""
    if event.options is None or event.choice is None:
        return event.decision == "stop" and chosen(event)
    return event.options[event.choice] in stops(event) and chosen(event)


def decisions_of(trace: Trace, stops: Stops = stop_options) -> list[Event]:
    """The root's turns at which it could have stopped: one event for each of its calls.

    Words that were no action (invalid, decision none) cannot be made another, so such a turn has no stop to value.
    """
    root = trace.events[0].agent if trace.events else ""
    seen: set[str] = set()
    found = []
    for event in trace.events:
        if event.agent != root or event.call is None or event.call in seen:
            continue
        if event.status in ("invalid", "failed") and event.decision == "none":
            continue
        seen.add(event.call)
        if event.status != "forced" and (event.options is None or stops(event)):
            found.append(event)
    return found


def stop_chance(event: Event, stops: Stops = stop_options) -> float:
    """The recorded chance of a stop at a decision."""
    if event.options is not None and event.option_propensities is not None:
        chances, ends = zip(event.options, event.option_propensities, strict=True), stops(event)
        return math.fsum(p for option, p in chances if option in ends)
    if event.decision == "stop" and event.propensity is not None:
        return event.propensity
    raise CreditError(
        f"event {event.id} has no chance of a stop on record. Record runs with an engine that gives "
        "option_propensities, or say it: chance=..."
    )


def stop_shares(event: Event, stops: Stops = stop_options) -> dict[str, float]:
    """The stops open at a decision, and how its policy's stops fall on them."""
    ends = tuple(stops(event))
    if len(ends) < 2:
        return dict.fromkeys(ends, 1.0)
    if event.options is None or event.option_propensities is None:
        raise CreditError(
            f"event {event.id} has {len(ends)} ways to stop ({'; '.join(ends)}) and no chances on record, so what its "
            "policy would stop with is not known. Record option_propensities, or say it: draft=..."
        )
    chances = dict(zip(event.options, event.option_propensities, strict=True))
    total = math.fsum(chances[option] for option in ends)
    return {option: chances[option] / total if total > 0 else 1 / len(ends) for option in ends}


def likeliest_onward(event: Event, stops: Stops = stop_options) -> str | None:
    """The likeliest open option that does not stop; without chances on record, the first. None: there is none."""
    options = event.options or ()
    chances = event.option_propensities or (1.0,) * len(options)
    ends = stops(event)
    others = [(p, option) for option, p in zip(options, chances, strict=True) if option not in ends and p > 0]
    return max(others, key=lambda other: other[0])[1] if others else None


def wait_for_those_left(trace: Trace, event: Event) -> Action | None:
    """Wait for anyone of those whom the stop cut off."""
    cut = any(
        other.type == "despawn" and other.status == "cancelled" and other.seq > event.seq
        for other in trace.events
    )
    return Wait(mode="any") if cut else None


def majority_draft(trace: Trace, event: Event) -> str:
    """What most of those who had returned to the root by then said; empty if nobody had."""
    claims = [
        Claim(other.agent, trace.text(other.content_ref) or "")
        for other in trace.events
        if other.type == "return" and other.seq < event.seq and other.to == event.agent
    ]
    return aggregator("majority").fuse(claims).text if claims else ""


def known(trace: Trace, event: Event) -> list[float]:
    """Features of a prefix: the numbers of its state and their squares where the task records one, or `counts`."""
    state = event.extra.get("step", {}).get("state")
    if state is None:
        return counts(trace, event)
    numbers = list(_numbers(msgspec.json.decode(state)))
    return [*numbers, *(number**2 for number in numbers)]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield float(value)


def counts(trace: Trace, event: Event) -> list[float]:
    """Plain features of a prefix: agents spawned, returned, and their squares."""
    before = [other for other in trace.events if other.seq < event.seq]
    spawned = float(sum(other.type == "spawn" and other.status == "ok" for other in before))
    returned = float(sum(other.type == "return" for other in before))
    return [spawned, returned, spawned**2, returned**2]
