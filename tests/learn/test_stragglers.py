"""Who is taken and what it counts, against enumeration: exact chances, Kaplan and Meier by hand, the bias of P11."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from baton.learn.scale.stragglers import MOST, Closed, Lengths, closing_time, num_needed, taken_chance


@pytest.mark.parametrize(("pending", "need"), [(5, 3), (4, 1), (6, 6), (1, 1)])
def test_the_chance_to_be_taken_is_that_of_all_ways_to_fall_out(pending: int, need: int) -> None:
    """Four lengths, unevenly likely: every assignment of lengths to the other groups is gone through."""
    lengths, chances = (1.0, 2.5, 4.0, 9.0), (0.4, 0.3, 0.2, 0.1)
    for mine in lengths:
        found = 0.0
        for others in product(range(4), repeat=pending - 1):
            ends = sorted([mine, *(lengths[k] for k in others)])
            if mine <= ends[need - 1]:
                found += math.prod(chances[k] for k in others)
        before = sum(p for length, p in zip(lengths, chances, strict=True) if length < mine)
        assert taken_chance(before, pending, need) == pytest.approx(found, rel=1e-12)


def test_a_step_closes_with_the_last_it_waits_for() -> None:
    assert closing_time([3.0, 1.0, 2.0], 2) == 2.0
    assert closing_time([3.0], 2) is None
    assert closing_time([3.0, 1.0], 1, due=[None]) is None
    assert closing_time([3.0, 1.0], 1, due=[7.0]) == 7.0
    assert [num_needed(8, share) for share in (0.01, 0.5, 0.51, 0.75)] == [1, 4, 5, 6]
    assert num_needed(10, 0.7) == 7  # and not 8, for 0.7 * 10 is a little more than 7


def test_lengths_are_estimated_as_by_kaplan_and_meier() -> None:
    """Two steps: 1, 2, 2 and one cut at 2; then 1, 4 and two cut at 3. By hand, from the table of who is at risk."""
    known = Lengths()
    known.weigh(Closed(ends=(2.0, 1.0, 2.0), left=(2.0,)), 4, 3)
    known.weigh(Closed(ends=(1.0, 4.0), left=(3.0, 3.0)), 4, 2)
    # At 1: 8 at risk, 2 end. At 2: 6, 2 end. Cut: one at 2, two at 3. At 4: 1, 1 ends.
    curve, tail = known.curve()
    assert curve == [pytest.approx(each) for each in [(1.0, 0.0), (2.0, 1 - 6 / 8), (4.0, 1 - 6 / 8 * 4 / 6)]]
    assert tail == pytest.approx(0.0)
    again = Lengths()
    again.load_state_dict(known.state_dict())
    assert again.curve() == (curve, tail)
    cut = Lengths()
    cut.weigh(Closed(ends=(1.0, 2.0, 3.0), left=(3.0,)), 4, 3)
    assert cut.curve()[1] == pytest.approx(0.25)


def test_weights_undo_the_cut() -> None:
    """Steps of six groups of which four are taken: the mean of those is too small, and weighed it is about right."""
    draw = np.random.default_rng(5)
    lengths, chances = np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.3, 0.25, 0.25, 0.2])
    true = float(lengths @ chances)
    known, plain, weighed = Lengths(), [], []
    for number in range(1200):
        ends = draw.choice(lengths, 6, p=chances)
        closed = np.sort(ends)[3]
        taken = ends[ends <= closed]
        weights = known.weigh(Closed(ends=tuple(taken), left=(closed,) * int((ends > closed).sum())), 6, 4)
        if number >= 20:  # lengths are not known at first
            plain.append(taken.mean())
            weighed.append(float(np.dot(weights, taken)) / len(taken))
    # By enumeration of all 4^6 ways.
    expected = 0.0
    for each in product(range(4), repeat=6):
        ends = sorted(float(lengths[k]) for k in each)
        first = [end for end in ends if end <= ends[3]]
        expected += math.prod(float(chances[k]) for k in each) * sum(first) / len(first)
    error = float(np.std(plain)) / math.sqrt(len(plain))
    assert abs(float(np.mean(plain)) - expected) < 4 * error
    assert true - expected > 0.4
    spread = float(np.std(weighed)) / math.sqrt(len(weighed))
    assert abs(float(np.mean(weighed)) - true) < 0.2 * (true - expected) + 3 * spread


def test_no_group_counts_without_bound() -> None:
    known = Lengths()
    known.weigh(Closed(ends=(1.0,) * 15 + (50.0,), left=()), 16, 16)
    weights = known.weigh(Closed(ends=(1.0, 50.0, 70.0)), 16, 2)
    assert weights == [pytest.approx(3 / 16), pytest.approx(3 / 16 * MOST), pytest.approx(3 / 16 * MOST)]
