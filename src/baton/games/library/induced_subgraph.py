"""Credit: agents are nodes, v(S) is the weight of edges inside S. Pairs share alike.

Shapley: w_ii + half of sum_j w_ij. Negative edges are agents in each other's way.
Source: Deng and Papadimitriou 1994.
"""

from __future__ import annotations

from typing import ClassVar

from baton.games.library.recruit import Recruit


class InducedSubgraph(Recruit, frozen=True, kw_only=True):
    """Pairs that work well together, or do not."""

    name: ClassVar[str] = "induced-subgraph"

    weights: tuple[tuple[float, ...], ...] = (
        (0.2, 0.5, -0.3, 0.0),
        (0.5, 0.1, 0.4, 0.0),
        (-0.3, 0.4, 0.3, 0.2),
        (0.0, 0.0, 0.2, -0.1),
    )

    def __post_init__(self) -> None:
        n = len(self.weights)
        self.require_players("weights")
        square = all(len(row) == n for row in self.weights)
        self.require(square, "weights", "it must be a square matrix")
        symmetric = square and all(
            self.weights[i][j] == self.weights[j][i] for i in range(n) for j in range(i)
        )
        self.require(symmetric, "weights", "it must be symmetric")

    def players(self) -> int:
        return len(self.weights)

    def worth(self, mask: int) -> float:
        members = [i for i in range(self.players()) if mask >> i & 1]
        return sum(self.weights[i][j] for i in members for j in members if j <= i)

    def credit(self) -> list[float]:
        return [
            row[i] + sum(w for j, w in enumerate(row) if j != i) / 2 for i, row in enumerate(self.weights)
        ]

    def rules(self) -> str:
        rows = "\n".join(" ".join(f"{w:g}" for w in row) for row in self.weights)
        return f"worth of pairs (and of each alone, on the diagonal):\n{rows}"
