"""Result 22's teams and arms: exact values against all outcomes, features against counts, and the kept records."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baton.trace.outcome import team_return
from baton.trace.validation import validate

LEARNING = Path(__file__).parents[2] / "benchmarks" / "learning"


pytestmark = pytest.mark.usefixtures("beside_the_results")


def small_shape() -> Any:
    """A lead over `all` of (any of two, one) and a vote of three."""
    from shaped_teams import Shape

    roles = ("lead", "all", "any", "junior", "senior", "junior", "vote", "junior", "senior", "senior")
    above = (-1, 0, 1, 2, 2, 1, 0, 6, 6, 6)
    below: list[list[int]] = [[] for _ in roles]
    for node, parent in enumerate(above[1:], 1):
        below[parent].append(node)
    return Shape(roles, above, tuple(map(tuple, below)))


def outcome(shape: Any, node: int, leaves: dict[int, bool]) -> float:
    """What comes out where every worker's result is known."""
    if node in leaves:
        return float(leaves[node])
    below = [outcome(shape, each, leaves) for each in shape.below[node]]
    role = shape.roles[node]
    if role == "lead":
        return sum(below) / len(below)
    if role == "vote":
        return float(sum(below) > len(below) / 2)
    return float(any(below) if role == "any" else all(below))


def test_the_exact_value_is_the_mean_over_all_that_may_happen() -> None:
    from shaped_teams import CHANCES, PRICE, Worth

    shape, care = small_shape(), {3: 0.1, 4: 0.5, 5: 0.9, 7: 0.3, 8: 0.6, 9: 0.5}
    workers = shape.workers
    total = []
    for careful in itertools.product((True, False), repeat=len(workers)):
        for right in itertools.product((True, False), repeat=len(workers)):
            chance = 1.0
            for node, is_careful, is_right in zip(workers, careful, right, strict=True):
                p = CHANCES[shape.roles[node]][0 if is_careful else 1]
                chance *= (care[node] if is_careful else 1 - care[node]) * (p if is_right else 1 - p)
            came = outcome(shape, 0, dict(zip(workers, right, strict=True)))
            total.append(chance * (came - PRICE * sum(careful) / len(workers)))
    assert Worth(shape, lambda _, node: care[node]).value == pytest.approx(math.fsum(total), abs=1e-12)


@pytest.mark.parametrize("size", [100, 300])
def test_rollouts_are_sound_traces_whose_value_ends_at_the_return(size: int) -> None:
    from shaped_teams import drawn, play

    shape = drawn(f"test/{size}", size)
    one = play(shape, "one")
    assert [problem for problem in validate(one.trace) if problem.level == "error"] == []
    assert len(one.trace.events) == shape.num_events == len(one.values) - 1
    assert one.values[-1] == pytest.approx(team_return(one.trace))
    assert one.values[: one.planned + 1] == pytest.approx([one.values[0]] * (one.planned + 1))
    moved = np.flatnonzero(np.abs(np.diff(one.values)) > 1e-12)
    assert {one.trace.events[place].type for place in moved} <= {"tool_call", "tool_result"}
    assert play(shape, "one").trace == one.trace


def test_what_luck_and_choices_move_is_nothing_on_average() -> None:
    """Over many rollouts of one shape, mean return and mean credit are those of the exact value."""
    from shaped_teams import drawn, evenly, expected, play, true_credit

    shape = drawn("mean", 40)
    every = [play(shape, f"mean/{n}") for n in range(1500)]
    totals = np.array([one.total for one in every])
    half = 4 * totals.std() / math.sqrt(len(every))
    assert totals.mean() == pytest.approx(expected(shape, evenly), abs=half)
    credit = np.array([true_credit(one).sum() for one in every])
    assert abs(credit.mean()) < 4 * credit.std() / math.sqrt(len(every))


def test_features_by_hand_are_the_counts_they_say() -> None:
    import shaped_features
    from shaped_teams import drawn, play

    one = play(drawn("features", 100), "features")
    plain, graph = shaped_features.plain(one.trace), shaped_features.graph(one.trace)
    assert len(plain) == len(graph) == len(one.values)
    width = shaped_features._NUM_WORK
    shares, weighed = graph[:, plain.shape[1] :][:, :width], graph[:, plain.shape[1] + width :][:, :width]
    assert shares.sum(1) == pytest.approx(1)  # every worker is in one state
    assert weighed.sum(1) == pytest.approx(1)  # and what bears on the lead is shared among them
    ends = shares[-1].reshape(-1, len(shaped_features._STATES)).sum(0)
    well = np.mean([event.status == "ok" for event in one.trace.events if event.type == "tool_result"])
    assert ends == pytest.approx([0, 0, 0, well, 1 - well])


def test_ridge_without_a_penalty_is_least_squares_with_each_trace_once() -> None:
    from shaped_features import Ridge

    random = np.random.default_rng(0)
    x = [random.normal(size=(size, 3)) for size in (40, 10)]
    y = [1.0, -2.0]
    ridge = Ridge(3, 0.0)
    ridge.fit(x, y)
    weight = np.sqrt(np.concatenate([np.full(len(each), 1 / len(each)) for each in x]))[:, None]
    both = np.concatenate([np.concatenate(x), np.ones((50, 1))], 1)
    exact = np.linalg.lstsq(both * weight, weight[:, 0] * np.repeat(y, (40, 10)), rcond=None)[0]
    assert ridge.values(x[0]) == pytest.approx(both[:40] @ exact)


def test_the_best_table_has_no_regret_and_even_odds_have_all_of_it() -> None:
    from shaped_policy import CareTable, regret
    from shaped_teams import drawn

    shapes = [drawn(f"regret/{n}", 60) for n in range(6)]
    assert regret(CareTable(), shapes) == pytest.approx(1)
    hasty = CareTable()
    rows = itertools.product(("junior", "senior"), ("lead", "all", "chain", "any", "vote"), (2, 3, 4))
    hasty.odds = dict.fromkeys(rows, -30.0)
    assert regret(hasty, shapes) > 0


def test_a_critic_that_knows_the_truth_is_judged_right() -> None:
    from shaped_critics import group_mean, judged
    from shaped_teams import drawn, play

    every = [play(drawn(f"judged/{k}", 100), f"judged/{k}/{n}") for k in range(3) for n in range(4)]
    found = judged(every, [one.values for one in every])
    assert found["value error"] == pytest.approx(0, abs=1e-9)
    assert found["cosine"] == pytest.approx(1)
    assert found["apart"] == pytest.approx(1)
    assert found["sign"] == 1.0
    mean = group_mean(every, 4)
    assert mean[0][0] == pytest.approx(np.mean([one.total for one in every[1:4]]))
    assert judged(every, mean, uniform=True)["cosine"] < 0.7


def test_the_page_says_what_the_records_say() -> None:
    import result22_graph_critic as result

    if not result.KEPT.exists():
        pytest.skip("no records are kept yet")
    records = json.loads(result.KEPT.read_text("utf-8"))
    page = (LEARNING.parents[1] / "docs" / "learning" / "graph_critic.md").read_text("utf-8")
    told = result.table(records).partition("| arm | tuned")[0]
    for line in told.splitlines():
        if line.startswith("| ") and "seeds" not in line:
            assert line in page, line
