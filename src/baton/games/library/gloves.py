"""Credit: the glove game. Only pairs are worth something, v(S) = min(left, right).

With two left gloves and one right one: (1/6, 1/6, 2/3), though leave-one-out gives (0, 0, 1).
Source: Shapley and Shubik 1969; the closed form for one scarce glove among n is 1/(n(n+1)) each.
"""

from __future__ import annotations

from math import comb
from typing import ClassVar

from baton.games.library.recruit import Recruit


class Gloves(Recruit, frozen=True, kw_only=True):
    """Left hands and right hands."""

    name: ClassVar[str] = "gloves"

    left: int = 2
    right: int = 1

    def __post_init__(self) -> None:
        for field in ("left", "right"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")
        self.require_players("left")

    def players(self) -> int:
        return self.left + self.right

    def worth(self, mask: int) -> float:
        left = (mask & ((1 << self.left) - 1)).bit_count()
        return float(min(left, mask.bit_count() - left))

    def credit(self) -> list[float]:
        """By counting: a glove makes a pair when more of the other hand came before it than of its own."""
        return [self._share(self.left, self.right)] * self.left + [
            self._share(self.right, self.left)
        ] * self.right

    def _share(self, own: int, other: int) -> float:
        n = own + other
        return sum(
            comb(own - 1, a) * comb(other, b) / (n * comb(n - 1, a + b))
            for a in range(own)
            for b in range(a + 1, other + 1)
        )

    def rules(self) -> str:
        return (
            f"players 1 to {self.left} hold left gloves, the other {self.right} right ones; a pair is worth 1"
        )
