"""Bandits: known index values, index against Bayes-optimal play, bounds."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.games.bandit import gittins_index, kl_bernoulli, lai_robbins
from baton.games.library.skill_bandit import SkillBandit
from baton.games.solve import evaluate, solve


@pytest.mark.parametrize(
    ("wins", "losses", "discount", "index"),
    # Gittins, Glazebrook and Weber 2011, table 8.1 (discount .9) and the .95 and .99 tables.
    [
        (1, 1, 0.9, 0.7029),
        (2, 1, 0.9, 0.8001),
        (1, 2, 0.9, 0.5001),
        (1, 1, 0.95, 0.7614),
        (1, 1, 0.99, 0.8699),
    ],
)
def test_published_indices(wins: int, losses: int, discount: float, index: float) -> None:
    assert gittins_index(wins, losses, discount) == pytest.approx(index, abs=1e-3)


@pytest.mark.parametrize("discount", [0.6, 0.75])
def test_index_policy_is_optimal_when_the_horizon_is_far(discount: float) -> None:
    game = SkillBandit(num_agents=2, num_tasks=16, discount=discount)
    best = solve(game).value
    indexed = evaluate(game, lambda state: {game.gittins(state): 1.0}).value
    tail = 1e-3 + discount**16 / (1 - discount)  # what the cut-off horizon can hide
    assert best - tail <= indexed <= best + 1e-12


def test_exploring_beats_the_best_mean_so_far() -> None:
    game = SkillBandit(num_agents=3, num_tasks=10)
    myopic = evaluate(game, lambda state: {game.quit(state): 1.0}).value
    assert solve(game).value > myopic + 1e-4


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_kl_bounds(p: float, q: float) -> None:
    """Pinsker below, chi-square above."""
    gap = abs(p - q)
    assert 2 * gap**2 - 1e-12 <= kl_bernoulli(p, q) <= gap**2 / (q * (1 - q)) + 1e-12


@given(st.lists(st.floats(0.05, 0.9), min_size=2, max_size=5, unique=True))
def test_lai_robbins_is_between_its_bounds(means: list[float]) -> None:
    best = max(means)
    gaps = [best - p for p in means if p < best]
    if min(gaps) < 1e-6:
        return
    bound = lai_robbins(means)
    assert sum(best * (1 - best) / gap for gap in gaps) * (1 - 1e-6) <= bound
    assert bound <= sum(1 / (2 * gap) for gap in gaps) * (1 + 1e-6)


def test_lai_robbins_by_hand() -> None:
    kl = 0.4 * log(0.4 / 0.6) + 0.6 * log(0.6 / 0.4)
    assert lai_robbins([0.4, 0.6]) == pytest.approx(0.2 / kl)
    assert lai_robbins([0.5, 0.5]) == 0
