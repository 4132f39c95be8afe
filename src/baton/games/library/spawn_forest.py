"""Credit: agents that others must spawn. An enabling orchestrator works through those below it.

v(S) of an ancestor-closed S: the chance that some worker in S solves the task, less what members
cost. Precedence gives an orchestrator only what it does itself (its cost); permission gives it a
share of what it made possible. Both sum to v(everyone).
Source: Faigle and Kern 1992; Gilles, Owen and van den Brink 1992.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from baton.games.coalition import closed_part, permission, precedence
from baton.games.library.recruit import Recruit


class SpawnForest(Recruit, frozen=True, kw_only=True):
    """A tree of spawns, each agent with its own chance."""

    name: ClassVar[str] = "spawn-forest"

    parents: tuple[int, ...] = (-1, 0, 0, 2, 2)
    """Who spawns each agent, numbered from 0; -1: nobody has to."""
    chances: tuple[float, ...] = (0.0, 0.3, 0.0, 0.4, 0.4)
    """That an agent solves the task."""
    costs: tuple[float, ...] = (0.02, 0.02, 0.02, 0.02, 0.02)
    price: float = 0.0

    def __post_init__(self) -> None:
        n = len(self.parents)
        self.require_players("parents")
        ordered = all(-1 <= p < i for i, p in enumerate(self.parents))
        self.require(ordered, "parents", "list spawners before those they spawn (-1: no spawner)")
        self.require(len(self.chances) == n, "chances", "there must be one per agent")
        self.require(all(0 <= p <= 1 for p in self.chances), "chances", "a probability lies from 0 to 1")
        self.require(len(self.costs) == n, "costs", "there must be one per agent")

    def players(self) -> int:
        return len(self.parents)

    def worth(self, mask: int) -> float:
        """Agents whose spawner is absent do not exist."""
        members = [i for i in range(self.players()) if closed_part(self.parents, mask) >> i & 1]
        solved = 1 - prod(1 - self.chances[i] for i in members)
        return solved - sum(self.costs[i] for i in members)

    def joinable(self, mask: int) -> list[int]:
        return [i for i in super().joinable(mask) if (p := self.parents[i]) < 0 or mask >> p & 1]

    def credit(self) -> list[float]:
        """Shares by permission, for orchestrators; `precedence_credit` has the workers'."""
        return permission(self.parents, self.worth)

    def precedence_credit(self) -> list[float]:
        """Shares by precedence, for workers."""
        return precedence(self.parents, self.worth)

    def rules(self) -> str:
        return "\n".join(
            f"player {i + 1}: solves with {p:g}, costs {c:g}" + (f", spawned by {q + 1}" if q >= 0 else "")
            for i, (p, c, q) in enumerate(zip(self.chances, self.costs, self.parents, strict=True))
        )
