"""O1: best of n with a verifier. n independent attempts, any success is recognised.

n agents earn V(1-(1-p)^n) - c n, concave in n: add one while V p (1-p)^n >= c.
Source: the marginal rule of fixed-sample search, Stigler, "The economics of information", 1961.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.library.width import Width


class BestOfN(Width, frozen=True, kw_only=True):
    """Attempts in parallel, the best one counts."""

    name: ClassVar[str] = "best-of-n"

    p: float = 0.3
    """One attempt's chance of success."""
    value: float = 1.0
    cost: float = 0.05
    """What one attempt costs."""

    def __post_init__(self) -> None:
        self.require_width()
        self.require(0 <= self.p <= 1, "p", "a probability lies from 0 to 1")
        self.require(self.value >= 0, "value", "it must not be negative")
        self.require(self.cost >= 0, "cost", "it must not be negative")

    def price(self) -> float:
        return self.cost

    def outcome(self, agents: int) -> Sequence[tuple[float, float]]:
        fail = (1 - self.p) ** agents
        return ((1 - fail, self.value), (fail, 0.0))

    def rules(self) -> str:
        return f"an attempt succeeds with {self.p:g}, costs {self.cost:g}; success is worth {self.value:g}"

    def num_agents(self) -> int:
        """The marginal rule."""
        n = 0
        while n < self.max_agents and self.value * self.p * (1 - self.p) ** n >= self.cost:
            n += 1
        return n

    def facts(self) -> dict[str, float]:
        n = self.num_agents()
        return {"num_agents": n, "value": self.worth(n)}
