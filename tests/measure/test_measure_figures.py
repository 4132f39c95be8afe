"""Figures and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from baton.measure.figure import Figure, jackknife, mean, not_measured, proportion, ratio, student_t


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (1, 1), (450, 1000)])
def test_wilson_is_scipys(k: int, n: int) -> None:
    found = proportion(k, n)
    low, high = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert (found.value, found.n) == (k / n, n)
    assert found.low == pytest.approx(low, abs=1e-12)
    assert found.high == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 30, 1000])
def test_student_is_scipys(degrees: int) -> None:
    assert student_t(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=2e-3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_mean_and_its_interval(values: list[float]) -> None:
    found = mean(values)
    assert found.value == pytest.approx(np.mean(values), abs=1e-6)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= (found.value or 0.0) <= found.high
    assert mean(reversed(values)) == found


@given(st.integers(1, 200), st.data())
def test_shares_stay_shares(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    found = proportion(k, n)
    assert 0 <= (found.low or 0.0) <= (found.value or 0.0) <= (found.high or 0.0) <= 1
    if k < n:  # one success more never lowers anything
        more = proportion(k + 1, n)
        assert (more.low or 0.0) >= (found.low or 0.0)
        assert (more.high or 0.0) >= (found.high or 0.0)


def test_none_is_not_zero() -> None:
    assert mean([not_measured("no clock"), Figure(2.0), Figure(4.0)]).value == 3.0
    assert mean([not_measured("no clock"), Figure(2.0)]).n == 1
    none = mean([not_measured("b"), not_measured("a"), not_measured("b")])
    assert (none.value, none.why_not) == (None, "b")
    assert mean([not_measured("b"), not_measured("a")]) == mean([not_measured("a"), not_measured("b")])
    assert proportion(0, 0).why_not
    assert mean([]).why_not
    assert ratio([1.0], [0.0]).why_not


def test_one_measurement_has_no_interval() -> None:
    assert mean([3.0]) == Figure(3.0, None, None, 1)
    assert ratio([3.0], [2.0]) == Figure(1.5, None, None, 1)


def test_jackknife_of_a_mean_is_the_usual_interval() -> None:
    values = [1.0, 4.0, 2.0, 8.0, 5.0]
    found = jackknife(values, lambda rows: math.fsum(rows) / len(rows))
    usual = mean(values)
    assert found.low == pytest.approx(usual.low)
    assert found.high == pytest.approx(usual.high)


def test_ratio_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        above, below = rng.normal(6, 1, 12), rng.normal(3, 0.5, 12)
        found = ratio(above.tolist(), below.tolist())
        covered += (found.low or 0.0) <= 2.0 <= (found.high or 0.0)
    assert covered >= 270
