"""O2: in which order one worker does the jobs, to the least weighted sum of completion times.

Optimum: Smith's rule, jobs by weight/duration, highest first.
Source: Smith, "Various optimizers for single-stage production", 1956.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State
from baton.games.schedule import smith_order


class WeightedCompletion(Game, frozen=True, kw_only=True):
    """Jobs on one worker, in turn."""

    name: ClassVar[str] = "weighted-completion"
    decisions: ClassVar[tuple[Choice, ...]] = ("delegate",)
    roles: ClassVar[tuple[str, ...]] = ("worker",)

    durations: tuple[float, ...] = (3.0, 1.0, 4.0, 2.0, 5.0)
    weights: tuple[float, ...] = (2.0, 1.0, 5.0, 1.0, 3.0)

    def __post_init__(self) -> None:
        self.require(1 <= len(self.durations) <= 16, "durations", "the exact solver takes 1 to 16 jobs")
        self.require(all(d > 0 for d in self.durations), "durations", "each must be above 0")
        self.require(len(self.weights) == len(self.durations), "weights", "there must be one per job")
        self.require(all(w >= 0 for w in self.weights), "weights", "none may be negative")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0,)),)

    def options(self, state: State) -> tuple[str, ...]:
        return tuple(f"delegate worker: job {i + 1}" for i in self._left(state)) if state else ()

    def step(self, state: State, option: str) -> Sequence[Branch]:
        job = int(option.rsplit(" ", 1)[1]) - 1
        # Every job still open waits for this one: its duration is charged to all their weights.
        waiting = sum(self.weights[i] for i in self._left(state))
        done = state[0] | 1 << job
        after = OVER if done == (1 << len(self.durations)) - 1 else (done,)
        return (Branch(1.0, after, -self.durations[job] * waiting),)

    def text(self, state: State) -> str:
        if not state:
            return "over"
        jobs = [
            f"job {i + 1}: {self.durations[i]:g} s, weight {self.weights[i]:g}" for i in self._left(state)
        ]
        return "\n".join([*jobs, "which next?"])

    def _left(self, state: State) -> list[int]:
        return [i for i in range(len(self.durations)) if not state[0] >> i & 1]

    def facts(self) -> dict[str, float]:
        order = smith_order(self.durations, self.weights)
        ends = accumulate(self.durations[i] for i in order)
        return {"value": -sum(self.weights[i] * end for i, end in zip(order, ends, strict=True))}
