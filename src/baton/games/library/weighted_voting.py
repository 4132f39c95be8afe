"""Credit: a weighted vote passes at a quota. Shapley–Shubik power by dynamic programming.

Power of i = share of orders in which i is the one that reaches the quota. Counting coalitions by
size and weight takes n^2 times the quota instead of 2^n.
Source: Shapley and Shubik 1954; the recursion, Mann and Shapley 1962.
"""

from __future__ import annotations

from math import comb
from typing import ClassVar

from baton.games.library.recruit import Recruit


class WeightedVoting(Recruit, frozen=True, kw_only=True):
    """Whose vote decides."""

    name: ClassVar[str] = "weighted-voting"

    weights: tuple[int, ...] = (4, 3, 2, 1)
    quota: int = 6

    def __post_init__(self) -> None:
        self.require_players("weights")
        self.require(all(w >= 0 for w in self.weights), "weights", "none may be negative")
        within = 1 <= self.quota <= sum(self.weights)
        self.require(within, "quota", f"it must be from 1 to the sum of weights, {sum(self.weights)}")

    def players(self) -> int:
        return len(self.weights)

    def worth(self, mask: int) -> float:
        return float(sum(w for i, w in enumerate(self.weights) if mask >> i & 1) >= self.quota)

    def credit(self) -> list[float]:
        return [self._power(i) for i in range(self.players())]

    def _power(self, player: int) -> float:
        n = self.players()
        # count[size][weight]: coalitions of the others still below the quota.
        count = [[0] * self.quota for _ in range(n)]
        count[0][0] = 1
        for other, weight in enumerate(self.weights):
            if other == player:
                continue
            for size in range(n - 1, 0, -1):
                for total in range(self.quota - 1, weight - 1, -1):
                    count[size][total] += count[size - 1][total - weight]
        swings = range(max(0, self.quota - self.weights[player]), self.quota)
        return sum(sum(count[size][t] for t in swings) / (n * comb(n - 1, size)) for size in range(n))

    def rules(self) -> str:
        return f"votes: {' '.join(map(str, self.weights))}; {self.quota} pass, which is worth 1"
