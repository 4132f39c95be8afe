"""Intervals hold what they are to: the benchmark in miniature, and its truths by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec import structs

from baton.credit import ESTIMATORS
from credit_bench.coverage import CASES, ROWS, Coverage, Held, Row, count_error, covered, log_coverage
from credit_bench.coverage_teams import WORLDS
from credit_bench.few_draws import GAMES, Few, by_orders, few_draws
from credit_bench.suite import coverage_target, few_target
from credit_bench.two_choices import OPTIONS, WORDS, Case, group_of
from credit_bench.varied_text import varied_text


def row_of(title: str) -> Row:
    found = next(row for row in ROWS if (row.title or row.estimator) == title)
    return structs.replace(found, times=1)


def test_every_listed_estimator_stands_in_the_table() -> None:
    rows = {row.estimator for row in ROWS} | {world.estimator for world in WORLDS} | {"stop-value"}
    assert set(ESTIMATORS) - rows == set()
    nothing = (None,) * len(CASES)
    lacking = coverage_target([Coverage(estimator="mean", listed="mean", holds="", cases=nothing)])
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
    told = Coverage(estimator="e", listed="e", holds="", cases=(half, *(None,) * 5))
    assert told.met is False
    assert Coverage(estimator="e", listed="e", holds="", cases=(None,) * 6).met is None
    empty = covered([[], []])
    assert (empty.share, empty.num) == (None, 0)
    assert [case.coin for case in CASES] == [False] * 4 + [True] * 2


def test_with_coins_intervals_may_be_too_wide_and_not_too_narrow() -> None:
    wide, narrow = (Held(share=share, num=900, error=0.008, stated=1.0) for share in (1.0, 0.9))
    for held, met in ((wide, True), (narrow, False)):
        cases = (None, None, None, None, held, held)
        assert Coverage(estimator="e", listed="e", holds="", cases=cases).met is met
        assert Few(estimator="e", world="w", held=held).met is met
        cases = (held, None, None, None, None, None)
        assert Coverage(estimator="e", listed="e", holds="", cases=cases).met is False
    assert not few_target([Few(estimator="e", world="w", held=narrow)]).met
    assert Few(estimator="e", world="w", held=Held(share=0.1, num=40, error=0.01, stated=1.0)).met is None


def test_the_error_of_a_count_is_that_of_the_share_that_is_claimed() -> None:
    """By simulation: groups of eight intervals of which half are one and the same."""
    draw = np.random.default_rng(4)
    shares, errors = [], []
    for _ in range(300):
        same, own = draw.random((60, 1)) < 0.95, draw.random((60, 4)) < 0.95
        told = [[bool(s[0])] * 4 + list(map(bool, o)) for s, o in zip(same, own, strict=True)]
        shares.append(np.mean(told))
        errors.append(count_error(told))
    assert np.mean(errors) == pytest.approx(np.std(shares), rel=0.15)
    assert count_error([[True] * 50]) == pytest.approx(math.sqrt(0.95 * 0.05 / 50))
    assert count_error([]) == 0.0


def test_the_truths_of_few_draws_are_those_of_enumeration() -> None:
    """Shapley by the weights of coalitions, where the benchmark takes orders."""
    for worth in GAMES:
        for i, value in enumerate(by_orders(worth, 6)):
            told = 0.0
            for mask in range(64):
                if not mask >> i & 1:
                    size = mask.bit_count()
                    weight = math.factorial(size) * math.factorial(5 - size) / math.factorial(6)
                    told += weight * (worth(mask | 1 << i) - worth(mask))
            assert value == pytest.approx(told)


def test_rows_of_few_draws_hold_what_they_are_to_in_miniature() -> None:
    rows = few_draws(1)
    assert {row.estimator for row in rows} == {
        "spawn-fork",
        "message-replay",
        "shapley",
        "stop-value",
        "telescope",
    }
    for row in rows:
        assert row.held.num > 5
        assert (row.held.share or 0) > 0.93 - 4 * row.held.error, row


def test_with_texts_that_vary_the_second_choice_keeps_its_credit() -> None:
    names = ("leave-one-out", "telescope, messages")
    for row in varied_text(10, [row_of(name) for name in names]):
        assert len(row.second) == 3
        for kept in row.second:
            assert kept is not None
            assert kept > 0.6, row
