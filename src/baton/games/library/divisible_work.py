"""O1: divisible work W shared evenly by n agents, each at a price c.

n agents (the orchestrator is the first) take W/n seconds: minimise W/n + c(n-1), n* ~ sqrt(W/c).
Source: the square-root rule of divisible-load scheduling, Bharadwaj et al., 1996.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, sqrt
from typing import ClassVar

from baton.games.library.width import Width


class DivisibleWork(Width, frozen=True, kw_only=True):
    """Split work evenly."""

    name: ClassVar[str] = "divisible-work"
    least: ClassVar[int] = 1

    work: float = 12.0
    """Seconds for one agent alone."""
    cost: float = 0.5
    """What one agent costs, in seconds."""

    def __post_init__(self) -> None:
        self.require_width()
        self.require(self.work >= 0, "work", "it must not be negative")
        self.require(self.cost > 0, "cost", "it must be above 0, else more agents are always better")

    def price(self) -> float:
        return self.cost

    def outcome(self, agents: int) -> Sequence[tuple[float, float]]:
        return ((1.0, -self.work / agents),)

    def rules(self) -> str:
        return f"work: {self.work:g} s, split evenly; an agent costs {self.cost:g} s"

    def num_agents(self) -> int:
        """The least n with W/(n(n+1)) < c: the integer next to sqrt(W/c)."""
        ratio = self.work / self.cost
        n = max(1, isqrt(int(ratio)))
        while n > 1 and (n - 1) * n > ratio:
            n -= 1
        while n * (n + 1) <= ratio:
            n += 1
        return min(n, self.max_agents)

    def facts(self) -> dict[str, float]:
        n = self.num_agents()
        return {"num_agents": n, "square_root": sqrt(self.work / self.cost), "value": self.worth(n)}
