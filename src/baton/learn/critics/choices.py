"""Choice points of a trace: where an agent chose among named options, what it saw, and what it earned on the way.

What the chooser saw is its prompt, so two prefixes that look alike to it are one situation. Rewards that a task
writes onto its steps come when they came; what is left of the return comes with the last choice.
"""

from __future__ import annotations

import math
from hashlib import blake2b

from msgspec import Struct, structs

from baton.credit.contract import RewardOf, team_return
from baton.learn.propensities import Asked
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = ["Asked", "ChoicePoint", "choice_points", "situation"]


class ChoicePoint(Struct, frozen=True, kw_only=True):
    """One choice."""

    place: int
    """Of its event in `trace.events`."""
    situation: bytes
    options: tuple[str, ...]
    choice: int
    chances: tuple[float, ...]
    asked: Asked
    reward: float
    """Earned between this choice and the next."""


def situation(trace: Trace, place: int) -> bytes:
    """What the chooser of an event saw, as a key."""
    event = trace.events[place]
    return _key(Asked.at(trace, event) or _unseen(event))


def _key(asked: Asked) -> bytes:
    return blake2b(asked.prompt + "\n".join(asked.options).encode(), digest_size=16).digest()


def _unseen(event: Event) -> Asked:
    return Asked(None, b"", event.options or (), 1.0)


def choice_points(trace: Trace, reward: RewardOf = team_return) -> list[ChoicePoint]:
    """In the order of the trace. Answers that could not be carried out are no choices."""
    found: list[ChoicePoint] = []
    for place, event in enumerate(trace.events):
        if event.call is None or event.options is None or event.choice is None or event.status != "ok":
            continue
        chances = event.option_propensities
        if chances is None:
            chances = tuple(float(k == event.choice) for k in range(len(event.options)))
        asked = Asked.at(trace, event) or _unseen(event)
        found.append(
            ChoicePoint(
                place=place,
                situation=_key(asked),
                options=event.options,
                choice=event.choice,
                chances=chances,
                asked=asked,
                reward=float(event.extra.get("step", {}).get("reward", 0.0)),
            )
        )
    if found:
        rest = reward(trace) - math.fsum(point.reward for point in found)
        found[-1] = structs.replace(found[-1], reward=found[-1].reward + rest)
    return found
