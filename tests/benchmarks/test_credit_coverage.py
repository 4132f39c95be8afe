"""Intervals hold what they are to: the benchmark in miniature, and its truths by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baton.credit import ESTIMATORS
from credit_bench.coverage import CASES, ROWS, Coverage, Held, Row, covered, log_coverage
from credit_bench.coverage_teams import WORLDS
from credit_bench.suite import coverage_target
from credit_bench.two_choices import OPTIONS, WORDS, Case, group_of
from credit_bench.varied_text import varied_text


def row_of(title: str) -> Row:
    return next(row for row in ROWS if (row.title or row.estimator) == title)


def test_every_listed_estimator_stands_in_the_table() -> None:
    rows = {row.estimator for row in ROWS} | {world.estimator for world in WORLDS} | {"stop-value"}
    assert set(ESTIMATORS) - rows == set()
    lacking = coverage_target([Coverage(estimator="mean", listed="mean", holds="", cases=())])
    assert not lacking.met
    assert "in no row" in lacking.what


def test_the_truth_of_two_choices_is_that_of_many_draws() -> None:
    case = Case(num_texts=5, group_size=3000)
    group = group_of(case, 3)
    totals = np.array([each.total for each in group])
    assert totals.mean() == pytest.approx(case.mean, abs=4 * totals.std() / math.sqrt(3000))
    assert totals.std() == pytest.approx(case.deviation, rel=0.06)
    assert np.mean(totals < 0.7) == pytest.approx(case.below(0.7), abs=0.035)
    for option, (p, _) in OPTIONS.items():
        assert np.mean([each.option == option for each in group]) == pytest.approx(p, abs=0.035)
    assert len({each.trace.calls[0].completion_ids for each in group}) == 15  # five texts, three options
    yes = np.mean([each.total for each in group if each.word == "yes"])
    assert yes - totals.mean() == pytest.approx(WORDS["yes"][1], abs=0.06)


@pytest.mark.parametrize("title", ["mean", "tool-group", "turn-group, context", "difference", "coma"])
def test_intervals_hold_the_truth_at_eight_rollouts(title: str) -> None:
    """Calls of one tool and turns with one prompt go together: the rollout is the draw."""
    [found] = log_coverage(40, rows=[row_of(title)])
    for held in found.cases[:3]:
        assert held is not None
        assert held.share is not None
        assert abs(held.share - 0.95) < 0.02 + 3 * max(held.error, 0.008), (title, found)


def test_doubly_robust_intervals_hold_the_truth_where_an_option_is_rare() -> None:
    """It held .76 to .91 of the time at 8 to 32 rollouts."""
    [found] = log_coverage(30, rows=[row_of("spawn-doubly-robust")])
    for held in found.cases[:4]:
        assert held is not None
        assert held.share is not None
        assert held.share > 0.91


def test_intervals_of_one_group_go_together() -> None:
    half = Held(share=0.9, num=600, error=0.01, stated=1.0)
    told = Coverage(estimator="e", listed="e", holds="", cases=(half, None, None, None, None))
    assert told.met is False
    assert Coverage(estimator="e", listed="e", holds="", cases=(None,) * 5).met is None
    empty = covered([[], []])
    assert (empty.share, empty.num) == (None, 0)
    assert len(CASES) == 5


def test_with_texts_that_vary_the_second_choice_keeps_its_credit() -> None:
    names = ("leave-one-out", "telescope, messages")
    for row in varied_text(10, [row_of(name) for name in names]):
        assert len(row.second) == 3
        for kept in row.second:
            assert kept is not None
            assert kept > 0.6, row
