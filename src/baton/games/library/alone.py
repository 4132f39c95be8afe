"""Negative control for O1: a strictly sequential task. The right answer is "do not spawn".

Every step needs the one before it, so Tinf = T1 and no team is faster than one agent: each spawned
agent only costs. V* = -steps, with nobody spawned.
Source: the span law, T_P >= Tinf (Brent 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.library.width import Width


class Alone(Width, frozen=True, kw_only=True):
    """A chain nobody can shorten."""

    name: ClassVar[str] = "alone"

    steps: int = 6
    """One second each, one after the other."""
    cost: float = 0.5
    """What one agent costs, in seconds."""
    max_agents: int = 8

    def __post_init__(self) -> None:
        self.require_width()
        self.require(self.steps >= 1, "steps", "it must be at least 1")
        self.require(self.cost >= 0, "cost", "it must not be negative")

    def price(self) -> float:
        return self.cost

    def outcome(self, agents: int) -> Sequence[tuple[float, float]]:  # noqa: ARG002 (that is the point)
        return ((1.0, -float(self.steps)),)

    def rules(self) -> str:
        return f"{self.steps} steps, each needs the one before; an agent costs {self.cost:g} s"

    def facts(self) -> dict[str, float]:
        return {"num_agents": 0, "value": -float(self.steps)}
