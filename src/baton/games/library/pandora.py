"""O5: Pandora's problem. Boxes hold unknown values; opening one costs; when to stop, which next.

Reservation value sigma_i: E[(X_i - sigma_i)+] = c_i. Open by descending sigma, stop when the best
value in hand is at least the next sigma. The optimum is E[max(in hand, max_i min(X_i, sigma_i))].
Source: Weitzman 1979; the formula for the value, Kleinberg, Waggoner and Weyl 2016.

Box i holds scale_i times U(0,1), cut into equally likely levels at their midpoints; with 10 levels
and c = .02 the reservation value is .8, as in the continuous case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import sqrt
from typing import ClassVar

from baton.errors import UsageError
from baton.games.game import OVER, Branch, Choice, Game, State

MAX_SIZE = 3_000_000
_STOP, _WHICH = 0, 1
_IN_HAND = (-1, 0)


class Pandora(Game, frozen=True, kw_only=True):
    """Open boxes one at a time, keep the best."""

    name: ClassVar[str] = "pandora"
    decisions: ClassVar[tuple[Choice, ...]] = ("delegate", "stop")
    roles: ClassVar[tuple[str, ...]] = ("opener",)

    scales: tuple[float, ...] = (1.0, 1.0, 0.8, 1.5)
    costs: tuple[float, ...] = (0.02, 0.1, 0.01, 0.4)
    num_levels: int = 10
    in_hand: float = 0.0
    """What there is without opening any."""

    def __post_init__(self) -> None:
        self.require(1 <= len(self.scales) <= 12, "scales", "it must be 1 to 12 boxes")
        self.require(all(s >= 0 for s in self.scales), "scales", "none may be negative")
        self.require(len(self.costs) == len(self.scales), "costs", "there must be one per box")
        self.require(all(c >= 0 for c in self.costs), "costs", "none may be negative")
        self.require(1 <= self.num_levels <= 1000, "num_levels", "it must be from 1 to 1,000")

    def check_exact(self) -> None:
        size = 2 ** len(self.scales) * len(self.scales) * self.num_levels**2
        if size > MAX_SIZE:
            raise UsageError(
                f"{self.name}: 2^boxes x boxes x levels^2 = {size:,} is past exact solution, which takes at most "
                f"{MAX_SIZE:,}. Use fewer boxes or levels with --set; reservation values need no solution."
            )

    def values(self, box: int) -> tuple[float, ...]:
        """What the box may hold, each alike."""
        return tuple(self.scales[box] * (level + 0.5) / self.num_levels for level in range(self.num_levels))

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (_STOP, 0, *_IN_HAND)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        closed = self._closed(state[1])
        if state[0] == _STOP:
            return ("stop best", "spawn opener: next") if closed else ("stop best",)
        return tuple(f"delegate opener: box {i + 1}" for i in closed)

    def decision(self, state: State) -> Choice:
        return "stop" if state[0] == _STOP else "delegate"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        _, opened, box, level = state
        if option == "stop best":
            return (Branch(1.0, OVER, self._value(box, level)),)
        if option.startswith("spawn"):
            return (Branch(1.0, (_WHICH, opened, box, level)),)
        new = int(option.rsplit(" ", 1)[1]) - 1
        best = self._value(box, level)
        chances: dict[tuple[int, int], float] = {}
        for found, value in enumerate(self.values(new)):
            kept = (new, found) if value > best else (box, level)
            chances[kept] = chances.get(kept, 0.0) + 1 / self.num_levels
        after = opened | 1 << new
        return [Branch(p, (_STOP, after, *kept), -self.costs[new]) for kept, p in chances.items()]

    def quit(self, state: State) -> str:
        return "stop best" if state[0] == _STOP else self.options(state)[0]

    def spawned(self, state: State) -> int:
        return int(state[1]).bit_count()

    def text(self, state: State) -> str:
        if not state:
            return "over"
        phase, opened, box, level = state
        closed = [
            f"box {i + 1}: up to {self.scales[i]:g}, costs {self.costs[i]:g}" for i in self._closed(opened)
        ]
        question = "stop or open one more?" if phase == _STOP else "which box?"
        return "\n".join([f"best: {self._value(box, level):g}", *closed, question])

    def _closed(self, opened: int) -> list[int]:
        return [i for i in range(len(self.scales)) if not opened >> i & 1]

    def _value(self, box: int, level: int) -> float:
        return self.scales[box] * (level + 0.5) / self.num_levels if box >= 0 else self.in_hand

    def reservations(self) -> list[float]:
        """sigma of each box."""
        return [reservation(self.values(i), cost) for i, cost in enumerate(self.costs)]

    def facts(self) -> dict[str, float]:
        sigma = self.reservations()
        out = {f"reservation_{i + 1}": s for i, s in enumerate(sigma)}
        if self.num_levels ** len(sigma) <= 200_000:
            capped = ([min(x, s) for x in self.values(i)] for i, s in enumerate(sigma))
            draws = [max(self.in_hand, *draw) for draw in product(*capped)]
            out["value"] = sum(draws) / len(draws)
        return out


def reservation(values: Sequence[float], cost: float) -> float:
    """sigma with E[(X - sigma)+] = cost, X alike over `values`."""
    total, n = 0.0, len(values)
    ordered = sorted(values, reverse=True)
    for i, value in enumerate(ordered):
        total += value
        sigma = (total - cost * n) / (i + 1)
        if i + 1 == n or sigma >= ordered[i + 1]:
            return sigma
    raise AssertionError("values are not empty")


def reservation_uniform(cost: float) -> float:
    """The same for U(0,1): (1 - sigma)^2 / 2 = cost; below zero once even a free look cannot pay."""
    return 1 - sqrt(2 * cost) if cost <= 0.5 else 0.5 - cost
