"""Scheduling: bounds over random DAGs, brute force on small ones, scipy for assignment."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from baton.games.library.assignment import AssignmentGame
from baton.games.library.dag_schedule import DagSchedule
from baton.games.library.weighted_completion import WeightedCompletion
from baton.games.schedule import assign, levels, list_schedule, longest_first, smith_order
from baton.games.solve import solve


@st.composite
def dags(draw: st.DrawFn, most: int = 6) -> tuple[list[int], list[tuple[int, int]]]:
    n = draw(st.integers(1, most))
    durations = draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = [pair for pair in pairs if draw(st.integers(0, 2)) == 0]
    return durations, edges


def serial_schedule(
    durations: list[int], edges: list[tuple[int, int]], slots: int, order: tuple[int, ...]
) -> int:
    """Each task in turn at the earliest time that precedence and slots allow, gaps included."""
    spans: dict[int, tuple[int, int]] = {}
    for task in order:
        start = max((spans[a][1] for a, b in edges if b == task), default=0)
        while any(
            sum(s <= t < e for s, e in spans.values()) >= slots for t in range(start, start + durations[task])
        ):
            start += 1
        spans[task] = (start, start + durations[task])
    return max(end for _, end in spans.values())


def brute_force(durations: list[int], edges: list[tuple[int, int]], slots: int) -> int:
    """Serial schedules over all orders include an optimal one (active schedules; Kolisch 1996)."""
    orders = (
        order
        for order in permutations(range(len(durations)))
        if all(order.index(a) < order.index(b) for a, b in edges)
    )
    return min(serial_schedule(durations, edges, slots, order) for order in orders)


@settings(max_examples=40)
@given(dags(5), st.integers(1, 3))
def test_exact_is_brute_force(dag: tuple[list[int], list[tuple[int, int]]], slots: int) -> None:
    durations, edges = dag
    game = DagSchedule(durations=tuple(durations), edges=tuple(edges), num_slots=slots)
    assert -solve(game).value == brute_force(durations, edges, slots)


@settings(max_examples=40)
@given(dags(7), st.integers(1, 4), st.randoms())
def test_graham_bounds(dag: tuple[list[int], list[tuple[int, int]]], slots: int, random) -> None:
    durations, edges = dag
    game = DagSchedule(durations=tuple(durations), edges=tuple(edges), num_slots=slots)
    best = -solve(game).value
    work, span = sum(durations), max(levels(durations, edges))
    order = list(range(len(durations)))
    random.shuffle(order)
    listed = list_schedule(durations, edges, slots, order)
    upper = work / slots + (1 - 1 / slots) * span
    assert max(work / slots, span) - 1e-9 <= best <= listed + 1e-9 <= upper + 2e-9
    facts = game.facts()
    assert facts["lower_bound"] - 1e-9 <= best <= facts["list_schedule"] <= facts["upper_bound"] + 1e-9


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.integers(1, 3))
def test_longest_first_bound(durations: list[int], slots: int) -> None:
    best = min(
        max(sum(d for d, slot in zip(durations, where, strict=True) if slot == s) for s in range(slots))
        for where in product(range(slots), repeat=len(durations))
    )
    assert best <= longest_first(durations, slots) <= (4 / 3 - 1 / (3 * slots)) * best + 1e-9


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(1, 3), st.data())
def test_hu_is_optimal_on_unit_in_trees(n: int, slots: int, data: st.DataObject) -> None:
    edges = [
        (i, data.draw(st.integers(i + 1, n - 1))) for i in range(n - 1)
    ]  # each task feeds one later task
    durations = [1] * n
    level = levels(durations, edges)
    by_level = sorted(range(n), key=lambda i: -level[i])
    game = DagSchedule(durations=tuple(durations), edges=tuple(edges), num_slots=slots)
    assert list_schedule(durations, edges, slots, by_level) == -solve(game).value


def test_waiting_by_choice_can_pay() -> None:
    """This DAG's optimum is below every list schedule: why the game allows waiting."""
    durations = [5, 1, 4, 3, 4, 5]
    edges = [(0, 1), (0, 3), (2, 3), (2, 4), (0, 5), (1, 5), (2, 5), (3, 5)]
    best = -solve(DagSchedule(durations=tuple(durations), edges=tuple(edges), num_slots=2)).value
    lists = [list_schedule(durations, edges, 2, order) for order in permutations(range(6))]
    assert (best, min(lists)) == (13, 14)
    assert brute_force(durations, edges, 2) == 13


def test_levels_find_cycles() -> None:
    assert levels([1, 1], [(0, 1), (1, 0)]) is None
    assert levels([2, 3, 4], [(0, 1), (1, 2)]) == [9, 7, 4]


matrices = st.integers(1, 6).flatmap(
    lambda n: st.integers(n, 7).flatmap(
        lambda m: st.lists(st.lists(st.floats(0, 1), min_size=m, max_size=m), min_size=n, max_size=n)
    )
)


@given(matrices)
def test_assignment_is_scipys(gain: list[list[float]]) -> None:
    value, chosen = assign(gain)
    rows, columns = linear_sum_assignment(np.array(gain), maximize=True)
    assert value == pytest.approx(np.array(gain)[rows, columns].sum(), abs=1e-9)
    assert len(set(chosen)) == len(gain)


@settings(max_examples=30)
@given(matrices)
def test_assignment_game(gain: list[list[float]]) -> None:
    game = AssignmentGame(skills=tuple(map(tuple, gain)))
    assert solve(game).value == pytest.approx(game.facts()["value"], abs=1e-9)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 9)), min_size=1, max_size=6))
def test_smith(jobs: list[tuple[float, float]]) -> None:
    durations, weights = zip(*jobs, strict=True)

    def total(order: tuple[int, ...]) -> float:
        now = out = 0.0
        for i in order:
            now += durations[i]
            out += weights[i] * now
        return out

    best = min(map(total, permutations(range(len(jobs)))))
    assert total(tuple(smith_order(durations, weights))) == pytest.approx(best)
    game = WeightedCompletion(durations=durations, weights=weights)
    assert -solve(game).value == pytest.approx(best)
    assert -game.facts()["value"] == pytest.approx(best)
