"""Credit: the airport game. Planes share a runway as long as the longest of them needs.

v(S) = -max of S's lengths. Shapley: with lengths sorted, each stretch is paid by those who need it,
share_i = sum_{k<=i} (c_k - c_{k-1})/(n-k+1).
Source: Littlechild and Owen 1973.
"""

from __future__ import annotations

from typing import ClassVar

from baton.games.library.recruit import Recruit


class Airport(Recruit, frozen=True, kw_only=True):
    """Who pays for the runway."""

    name: ClassVar[str] = "airport"

    lengths: tuple[float, ...] = (1.0, 2.0, 2.0, 5.0)
    """What each plane needs."""
    benefit: float = 1.2
    """What each plane that is served brings."""

    def __post_init__(self) -> None:
        self.require_players("lengths")
        self.require(all(c >= 0 for c in self.lengths), "lengths", "none may be negative")

    def players(self) -> int:
        return len(self.lengths)

    def worth(self, mask: int) -> float:
        return -max((c for i, c in enumerate(self.lengths) if mask >> i & 1), default=0.0)

    def brings(self, player: int) -> float:  # noqa: ARG002 (all alike)
        return self.benefit - self.price

    def credit(self) -> list[float]:
        order = sorted(range(self.players()), key=lambda i: self.lengths[i])
        shares, share, last = [0.0] * self.players(), 0.0, 0.0
        for k, i in enumerate(order):
            share -= (self.lengths[i] - last) / (self.players() - k)
            last = self.lengths[i]
            shares[i] = share
        return shares

    def rules(self) -> str:
        lengths = " ".join(f"{c:g}" for c in self.lengths)
        return f"runway lengths: {lengths}; the longest is paid; a plane brings {self.benefit:g}"
