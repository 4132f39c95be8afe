"""Credit on long traces: many steps, one of which matters, and noise on all of them.

At every step a sign is shown and the orchestrator says left or right. Only at the pivotal step does
following the sign earn 1; every step adds luck of ±noise. Exact credit: the pivotal choice has
1 - P(right) or -P(right), all others zero. With the shared return as everyone's signal the pivotal
choice's signal-to-noise is (1-P(right))/(noise sqrt(length)): credit diffuses as the trace grows.
Lengths 10, 100 and 1,000 are the ladder.
Source: Observation 1 of the survey, arXiv 2605.02801.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State

_SIDES = ("left", "right")


class LengthLadder(Game, frozen=True, kw_only=True):
    """A long trace with one pivotal event."""

    name: ClassVar[str] = "length-ladder"
    decisions: ClassVar[tuple[Choice, ...]] = ("communicate",)
    roles: ClassVar[tuple[str, ...]] = ("worker",)

    length: int = 10
    pivot: int = 4
    """The step that matters, from 0."""
    noise: float = 0.1

    def __post_init__(self) -> None:
        self.require(1 <= self.length <= 100_000, "length", "it must be from 1 to 100,000")
        self.require(0 <= self.pivot < self.length, "pivot", f"steps are numbered 0 to {self.length - 1}")
        self.require(self.noise >= 0, "noise", "it must not be negative")

    def start(self) -> Sequence[Branch]:
        return (Branch(0.5, (0, 0, 0)), Branch(0.5, (0, 1, 0)))

    def options(self, state: State) -> tuple[str, ...]:
        return tuple(f"send worker: {side}" for side in _SIDES) if state else ()

    def step(self, state: State, option: str) -> Sequence[Branch]:
        t, sign, hit = state
        if t == self.pivot:
            hit = int(option.endswith(_SIDES[sign]))
        last = t + 1 == self.length
        after = (OVER,) if last else ((t + 1, 0, hit), (t + 1, 1, hit))
        earned = float(hit) if last else 0.0
        lucks = (self.noise, -self.noise) if self.noise else (0.0,)
        p = 1 / (len(after) * len(lucks))
        return [Branch(p, state, earned + luck) for state in after for luck in lucks]

    def text(self, state: State) -> str:
        return f"step {state[0] + 1} of {self.length}\nsign: {_SIDES[state[1]]}\nsay?" if state else "over"

    def credit(self, state: State, option: str, p_right: float = 0.5) -> float:
        """Exact credit of a choice, under a policy that is right at the pivot with p_right."""
        if state[0] != self.pivot:
            return 0.0
        return 1 - p_right if option.endswith(_SIDES[state[1]]) else -p_right

    def signal_to_noise(self, p_right: float = 0.5) -> float:
        """The signal-to-noise of the pivotal choice, if right, when the shared return is its only signal."""
        return (1 - p_right) / (self.noise * sqrt(self.length)) if self.noise else inf

    def facts(self) -> dict[str, float]:
        return {"value": 1.0, "signal_to_noise": self.signal_to_noise()}
