"""O4: unbiased estimators with known covariance S; how to average them.

Weights w = S^-1 1 / (1' S^-1 1) have the least variance, 1/(1' S^-1 1). Equal weights, the best
estimator alone and weights that ignore correlation are never better.
Source: Bates and Granger, "The combination of forecasts", 1969.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from baton.games.game import OVER, Branch, Choice, Game, State

_METHODS = ("equal", "best", "independent", "optimal")


class CorrelatedEstimators(Game, frozen=True, kw_only=True):
    """Average to the least variance."""

    name: ClassVar[str] = "correlated-estimators"
    decisions: ClassVar[tuple[Choice, ...]] = ("aggregate",)

    covariance: tuple[tuple[float, ...], ...] = ((1.0, 0.8, 0.0), (0.8, 1.2, 0.0), (0.0, 0.0, 2.0))

    def __post_init__(self) -> None:
        n = len(self.covariance)
        square = n > 0 and all(len(row) == n for row in self.covariance)
        self.require(square, "covariance", "it must be a square matrix")
        matrix = np.array(self.covariance)
        positive = bool(np.allclose(matrix, matrix.T)) and bool(np.linalg.eigvalsh(matrix).min() > 0)
        self.require(positive, "covariance", "it must be symmetric and positive definite")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0,)),)

    def options(self, state: State) -> tuple[str, ...]:
        return tuple(f"aggregate {method}" for method in _METHODS) if state else ()

    def step(self, state: State, option: str) -> Sequence[Branch]:  # noqa: ARG002 (there is one state)
        return (Branch(1.0, OVER, -self.variance(self.weights(option.removeprefix("aggregate ")))),)

    def quit(self, state: State) -> str:  # noqa: ARG002
        return "aggregate equal"

    def text(self, state: State) -> str:
        if not state:
            return "over"
        rows = [" ".join(f"{x:g}" for x in row) for row in self.covariance]
        return "\n".join(["covariance", *rows, "how to average?"])

    def weights(self, method: str) -> NDArray[np.float64]:
        """The weight of each estimator, summing to one."""
        matrix = np.array(self.covariance)
        n = len(matrix)
        raw = {
            "equal": np.ones(n),
            "best": np.eye(n)[np.argmin(np.diag(matrix))],
            "independent": 1 / np.diag(matrix),
            "optimal": np.linalg.solve(matrix, np.ones(n)),
        }[method]
        weights: NDArray[np.float64] = raw / raw.sum()
        return weights

    def variance(self, weights: NDArray[np.float64]) -> float:
        """The variance of the weighted average."""
        return float(weights @ np.array(self.covariance) @ weights)

    def facts(self) -> dict[str, float]:
        return {"value": -1 / float(np.linalg.inv(np.array(self.covariance)).sum())}
