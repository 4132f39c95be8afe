from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from credit_teams import group_of, returns_lists, values_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, rankdata, t

from baton.credit import ESTIMATORS
from baton.credit.core.baseline import centred, left_out, normal_ranks, normalised, std
from baton.credit.estimators.group import group_relative, leave_one_out, mean_only, rank


def trl_advantages(rewards: list[float], num_generations: int) -> np.ndarray:
    """As TRL's GRPOTrainer has it: grouped mean and (n - 1) std, repeated, eps 1e-4."""
    table = np.asarray(rewards).reshape(-1, num_generations)
    mean = np.repeat(table.mean(axis=1), num_generations)
    std = np.repeat(table.std(axis=1, ddof=1), num_generations)
    return (np.asarray(rewards) - mean) / (std + 1e-4)


@given(returns_lists)
def test_group_is_trls_advantage(totals: list[float]) -> None:
    ours = [value for (value,) in values_of(group_relative(group_of(totals)))]
    np.testing.assert_allclose(ours, trl_advantages(totals, len(totals)), atol=1e-8)


@given(returns_lists)
def test_advantages_sum_to_zero(totals: list[float]) -> None:
    for function in (group_relative, mean_only, leave_one_out):
        assert math.fsum(value for (value,) in values_of(function(group_of(totals)))) == pytest.approx(
            0, abs=1e-6
        )


@given(returns_lists)
def test_leave_one_out_is_the_mean_only_one_scaled(totals: list[float]) -> None:
    n = len(totals)
    group = group_of(totals)
    for place, ((mean,), (left,)) in enumerate(
        zip(values_of(mean_only(group)), values_of(leave_one_out(group)), strict=True)
    ):
        assert left == pytest.approx(mean * n / (n - 1), abs=1e-9)
        others = [total for other, total in enumerate(totals) if other != place]
        assert left == pytest.approx(totals[place] - sum(others) / len(others), abs=1e-9)


@given(returns_lists)
def test_ranks_match_scipys(totals: list[float]) -> None:
    ours = [value for (value,) in values_of(rank(group_of(totals)))]
    expected = norm.ppf((rankdata(totals) - 0.5) / len(totals))
    np.testing.assert_allclose(ours, expected, atol=1e-9)


@given(returns_lists, st.randoms(use_true_random=False))
def test_order_of_rollouts_does_not_matter(totals: list[float], random: object) -> None:
    order = list(range(len(totals)))
    random.shuffle(order)  # type: ignore[attr-defined]
    group = group_of(totals)
    for name in (
        "group",
        "mean",
        "leave-one-out",
        "rank",
        "agent-group",
        "role-group",
        "return-to-go",
        "turn-group",
    ):
        straight = ESTIMATORS[name](group)
        shuffled = ESTIMATORS[name]([group[place] for place in order])
        for place, mine in zip(order, shuffled, strict=True):
            assert [c.target for c in mine] == [c.target for c in straight[place]]
            assert [c.value for c in mine] == pytest.approx([c.value for c in straight[place]], abs=1e-9)


def test_outliers_do_not_set_the_scale_of_ranks() -> None:
    assert values_of(rank(group_of([0.0, 1.0, 2.0]))) == values_of(rank(group_of([0.0, 1.0, 2e6])))


def test_equal_returns_earn_nothing() -> None:
    for function in (group_relative, mean_only, leave_one_out, rank):
        assert np.allclose(values_of(function(group_of([0.3] * 4))), 0, atol=1e-9)
    assert [found.value for found in normalised([0.3, 0.3], eps=0.0)] == [0.0, 0.0]


def test_standard_errors_are_those_of_a_redrawn_baseline() -> None:
    """Fix one return, draw the others again: the spread of the advantage is the stated error, but for Student's t."""
    rng = np.random.default_rng(0)
    n, draws = 6, 4000
    found, stated = [], []
    for _ in range(draws):
        values = [0.7, *rng.normal(size=n - 1)]
        advantage = centred(values)[0]
        found.append(advantage.value)
        stated.append((advantage.stderr or 0.0) ** 2)
    wide = t.ppf(0.975, n - 2) / norm.ppf(0.975)
    assert np.sqrt(np.mean(stated)) == pytest.approx(np.std(found) * wide, rel=0.05)
    errors = [a.stderr for a in normal_ranks([1.0, 2.0, 3.0])]
    assert errors[0] == pytest.approx(errors[2])


@given(st.floats(0.05, 0.95), st.integers(2, 4))
def test_leave_one_out_gives_the_exact_gradient(p: float, size: int) -> None:
    """Over every outcome of a two-option policy, E[mean of A x score] is dE[R]/dlogit; mean-only is (G-1)/G of it."""
    worth = (0.25, 1.0)
    score = (-p, 1 - p)  # d log pi / d logit, for option 0 and 1
    expected = {leave_one_out: 0.0, mean_only: 0.0}
    for choices in product((0, 1), repeat=size):
        chance = math.prod(p if choice else 1 - p for choice in choices)
        group = group_of([worth[choice] for choice in choices])
        for function in expected:
            values = [value for (value,) in values_of(function(group))]
            expected[function] += (
                chance * sum(v * score[c] for v, c in zip(values, choices, strict=True)) / size
            )
    truth = p * (1 - p) * (worth[1] - worth[0])
    assert expected[leave_one_out] == pytest.approx(truth)
    assert expected[mean_only] == pytest.approx(truth * (size - 1) / size)


@pytest.mark.parametrize("alike", [[0.7] * 6, [0.1] * 12, [0.9] * 9, [1e9 / 3] * 7, [0.1 + 0.2, 0.3, 0.3]])
def test_returns_that_are_alike_have_no_spread(alike: list[float]) -> None:
    """Their mean is off in the last digit, and so was their deviation: 1e-16, which something was divided by."""
    assert std(alike) == 0.0
    nothing = [(0.0, None)] * len(alike)  # and they do not tell how far their mean may be off
    assert [tuple(a) for a in centred(alike)] == nothing
    assert [tuple(a) for a in left_out(alike)] == nothing
    assert [tuple(a) for a in normalised(alike)] == nothing
    assert [tuple(a) for a in normalised(alike, eps=0.0)] == nothing
    assert values_of(group_relative(group_of(alike), eps=0.0)) == [[0.0]] * len(alike)


@pytest.mark.parametrize("values", [[1e-9, 2e-9], [1.0, 1.0 + 1e-9], [-1e-100, 1e-100], [1e9, 1e9 + 1]])
def test_a_small_spread_is_still_one(values: list[float]) -> None:
    half = (values[1] - values[0]) / math.sqrt(2)
    assert std(values) == pytest.approx(half, rel=1e-6, abs=0)
    assert [a.value for a in normalised(values, eps=0.0)] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)])
