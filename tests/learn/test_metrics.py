"""A step in figures: its mean return, and how well that is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from baton.learn.watch import interval


def test_the_interval_is_over_groups() -> None:
    """Rollouts of one instance share its difficulty: eight of them are not eight draws."""
    found = interval([[0.0] * 8, [1.0] * 8, [2.0] * 8])
    assert found["mean"] == 1.0
    assert found["half"] == pytest.approx(t.ppf(0.975, 2) * 1.0 / 3**0.5, rel=2e-3)


def test_groups_of_one_are_draws() -> None:
    values = [0.0, 1.0, 5.0, 2.0]
    found = interval([[value] for value in values])
    assert found["mean"] == 2.0
    assert found["half"] == pytest.approx(t.ppf(0.975, 3) * np.std(values, ddof=1) / 2, rel=2e-3)


def test_a_larger_group_counts_for_more() -> None:
    """Sums (3, 1) over sizes (3, 1) around a mean of 1: nothing is left of either."""
    assert interval([[2.0, 1.0, 0.0], [1.0]]) == {"mean": 1.0, "half": 0.0}


def test_one_group_tells_no_interval() -> None:
    assert interval([[0.0, 1.0, 0.5]]) == {"mean": 0.5, "half": None}


def test_intervals_hold_where_instances_differ() -> None:
    draw = np.random.default_rng(0)
    held = []
    for _ in range(1000):
        groups = draw.normal(0, 1, (4, 1)) + draw.normal(0, 0.5, (4, 8))
        found = interval(groups.tolist())
        assert found["mean"] is not None
        assert found["half"] is not None
        held.append(abs(found["mean"]) <= found["half"])
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)
