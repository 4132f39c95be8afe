"""O1: the universal scalability law. n agents give a speed-up n/(1 + s(n-1) + k n(n-1)).

s is contention (what is serial), k is coherence (everyone talks to everyone). With k > 0 the
speed-up peaks at n* = sqrt((1-s)/k) and then falls: the larger team is slower.
Source: Gunther, "Guerrilla Capacity Planning", 2007; k = 0 is Amdahl's law.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf, sqrt
from typing import ClassVar

from baton.games.library.width import Width


class Usl(Width, frozen=True, kw_only=True):
    """Speed-up that peaks."""

    name: ClassVar[str] = "usl"
    least: ClassVar[int] = 1

    contention: float = 0.05
    coherence: float = 0.02
    cost: float = 0.0
    """What one more agent costs, in speed-up."""

    def __post_init__(self) -> None:
        self.require_width()
        self.require(0 <= self.contention <= 1, "contention", "a share lies from 0 to 1")
        self.require(self.coherence >= 0, "coherence", "it must not be negative")
        self.require(self.cost >= 0, "cost", "it must not be negative")

    def price(self) -> float:
        return self.cost

    def speed_up(self, agents: float) -> float:
        """The law."""
        return agents / (1 + self.contention * (agents - 1) + self.coherence * agents * (agents - 1))

    def outcome(self, agents: int) -> Sequence[tuple[float, float]]:
        return ((1.0, self.speed_up(agents)),)

    def rules(self) -> str:
        return f"contention {self.contention:g}, coherence {self.coherence:g}; an agent costs {self.cost:g}"

    def peak(self) -> float:
        """n* = sqrt((1-s)/k), not rounded."""
        return sqrt((1 - self.contention) / self.coherence) if self.coherence else inf

    def facts(self) -> dict[str, float]:
        if self.cost:
            return {"peak": self.peak()}  # the law's own peak; a price moves the optimum below it
        below = max(1, self.max_agents if self.peak() >= self.max_agents else floor(self.peak()))
        n = max(below, min(below + 1, self.max_agents), key=self.speed_up)
        return {"peak": self.peak(), "num_agents": n, "value": self.worth(n)}
