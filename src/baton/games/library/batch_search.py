"""O1 x O5: draw a batch of n values from U(0,1) at c each, keep the best; when to stop adding.

The best of n is worth n/(n+1), so one more adds 1/((n+1)(n+2)): add while that is at least c.
Source: fixed-sample search, Stigler 1961; the uniform case is a textbook order statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import Choice
from baton.games.library.width import Width


class BatchSearch(Width, frozen=True, kw_only=True):
    """One batch, the best of it."""

    name: ClassVar[str] = "batch-search"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)

    cost: float = 0.03
    """What one draw costs."""

    def __post_init__(self) -> None:
        self.require_width()
        self.require(self.cost >= 0, "cost", "it must not be negative")

    def price(self) -> float:
        return self.cost

    def outcome(self, agents: int) -> Sequence[tuple[float, float]]:
        return ((1.0, agents / (agents + 1)),)

    def rules(self) -> str:
        return f"each searcher finds a value between 0 and 1 and costs {self.cost:g}; the best one counts"

    def num_agents(self) -> int:
        """The marginal rule."""
        n = 0
        while n < self.max_agents and 1 / ((n + 1) * (n + 2)) >= self.cost:
            n += 1
        return n

    def facts(self) -> dict[str, float]:
        n = self.num_agents()
        return {"num_agents": n, "value": self.worth(n)}
