"""O4: voters and estimators."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.games.library.correlated_estimators import CorrelatedEstimators
from baton.games.library.voters import Voters
from baton.games.solve import solve


def test_the_known_case() -> None:
    game = Voters(skills=(0.9, 0.6, 0.6, 0.55, 0.55))
    assert game.majority_accuracy() == pytest.approx(0.755, abs=5e-4)
    assert solve(game).value == pytest.approx(0.9)


skills = st.lists(st.floats(0.02, 0.98), min_size=1, max_size=5).map(tuple)


@settings(max_examples=40)
@given(skills, st.integers(2, 3))
def test_log_odds_weights_are_optimal(skills: tuple[float, ...], classes: int) -> None:
    game = Voters(skills=skills, num_classes=classes)
    best = solve(game).value
    assert game.accuracy(game.weights()) == pytest.approx(best)
    assert game.majority_accuracy() <= best + 1e-12
    # A voter below chance is as good as one above it, read the other way (for two classes).
    assert best >= max(max(skills), 1 / classes) - 1e-12


@settings(max_examples=20)
@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=3).map(tuple))
def test_optimum_by_brute_force_over_all_rules(skills: tuple[float, ...]) -> None:
    """Every function from votes to answers."""
    profiles = list(product((0, 1), repeat=len(skills)))

    def likely(votes: tuple[int, ...], answer: int) -> float:
        return prod(p if v == answer else 1 - p for p, v in zip(skills, votes, strict=True)) / 2

    best = max(
        sum(likely(votes, says) for votes, says in zip(profiles, rule, strict=True))
        for rule in product((0, 1), repeat=len(profiles))
    )
    assert solve(Voters(skills=skills)).value == pytest.approx(best)


@given(st.integers(1, 5), st.floats(0.5, 0.99))
def test_condorcet(half: int, p: float) -> None:
    """Equal voters better than chance: majority is optimal, and two more never hurt."""
    small, large = Voters(skills=(p,) * (2 * half - 1)), Voters(skills=(p,) * (2 * half + 1))
    assert small.majority_accuracy() <= large.majority_accuracy() + 1e-12
    assert small.majority_accuracy() == pytest.approx(small.accuracy(small.weights()) if p > 0.5 else 0.5)


@st.composite
def covariances(draw: st.DrawFn) -> tuple[tuple[float, ...], ...]:
    n = draw(st.integers(1, 4))
    root = np.array(draw(st.lists(st.floats(-1, 1), min_size=n * n, max_size=n * n))).reshape(n, n)
    matrix = root @ root.T + 0.2 * np.eye(n)
    return tuple(map(tuple, ((matrix + matrix.T) / 2).tolist()))


@given(covariances(), st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_no_weights_beat_inverse_covariance(
    covariance: tuple[tuple[float, ...], ...], raw: list[float]
) -> None:
    game = CorrelatedEstimators(covariance=covariance)
    best = -solve(game).value
    assert best == pytest.approx(-game.facts()["value"])
    weights = np.array(raw[: len(covariance)])
    assert game.variance(weights / weights.sum()) >= best - 1e-9
    for method in ("equal", "best", "independent"):
        assert game.variance(game.weights(method)) >= best - 1e-9


@given(st.integers(1, 6), st.floats(0, 0.95))
def test_effective_number_of_voters(n: int, rho: float) -> None:
    """n equally correlated estimators count as n/(1+(n-1) rho)."""
    matrix = np.full((n, n), rho) + (1 - rho) * np.eye(n)
    game = CorrelatedEstimators(covariance=tuple(map(tuple, matrix.tolist())))
    assert -1 / game.facts()["value"] == pytest.approx(n / (1 + (n - 1) * rho))
