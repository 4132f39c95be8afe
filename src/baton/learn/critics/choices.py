"""Choice points of a trace: where an agent chose among named options, what it saw, and what it earned on the way.

What the chooser saw is its prompt, so two prefixes that look alike to it are one situation. Rewards that a task
writes onto its steps come when they came; what is left of the return comes with the last choice.
"""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np
from msgspec import Struct

from baton.credit.contract import RewardOf, team_return
from baton.trace.trace import Trace

__all__ = ["ChoicePoint", "choice_points", "situation"]


class ChoicePoint(Struct, frozen=True, kw_only=True):
    """One choice."""

    place: int
    """Of its event in `trace.events`."""
    situation: bytes
    options: tuple[str, ...]
    choice: int
    chances: tuple[float, ...]
    reward: float
    """Earned between this choice and the next."""


def situation(trace: Trace, place: int) -> bytes:
    """What the chooser of an event saw, as a key."""
    event = trace.events[place]
    prompt = trace.prompt_ids(trace.call_by_id[event.call or ""])
    seen = b"" if prompt is None else prompt.numpy().astype(np.int32).tobytes()
    return blake2b(seen + "\n".join(event.options or ()).encode(), digest_size=16).digest()


def choice_points(trace: Trace, reward: RewardOf = team_return) -> list[ChoicePoint]:
    """In the order of the trace. Answers that could not be carried out are no choices."""
    found: list[ChoicePoint] = []
    for place, event in enumerate(trace.events):
        if event.call is None or event.options is None or event.choice is None or event.status != "ok":
            continue
        chances = event.option_propensities
        if chances is None:
            chances = tuple(float(k == event.choice) for k in range(len(event.options)))
        found.append(
            ChoicePoint(
                place=place,
                situation=situation(trace, place),
                options=event.options,
                choice=event.choice,
                chances=chances,
                reward=float(event.extra.get("step", {}).get("reward", 0.0)),
            )
        )
    if found:
        rest = reward(trace) - math.fsum(point.reward for point in found)
        last = found[-1]
        found[-1] = ChoicePoint(
            place=last.place,
            situation=last.situation,
            options=last.options,
            choice=last.choice,
            chances=last.chances,
            reward=last.reward + rest,
        )
    return found
