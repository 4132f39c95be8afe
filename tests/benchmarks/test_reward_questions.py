"""The games and credits of result 15, by hand: values by other sums, effects that are known to the digit."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import pytest

from baton.games.library.pandora import Pandora
from baton.games.solve import solve

pytestmark = pytest.mark.usefixtures("beside_the_results")


@pytest.mark.parametrize("seed", range(5))
def test_the_best_team_is_the_best_of_all_pure_plays(seed: int) -> None:
    from team_of_kinds import KINDS, drawn

    team = drawn(seed, 4.0)
    plays = (
        math.fsum(
            f * max((team.chances[m] for m in range(KINDS) if methods[m] == kind), default=0.0)
            for kind, f in enumerate(team.frequencies)
        )
        for methods in product(range(KINDS), repeat=KINDS)
    )
    assert team.best == pytest.approx(max(plays), abs=1e-12)
    ordered = zip(sorted(team.frequencies), sorted(team.chances), strict=True)
    assert team.best == pytest.approx(math.fsum(f * r for f, r in ordered), abs=1e-12)


def test_the_value_of_play_is_what_play_earns_on_average() -> None:
    from team_of_kinds import KINDS, Learning, drawn, softmax

    learning, draw, num = Learning(drawn(7, 4.0), 7), random.Random(1), 40_000
    hand, method = [softmax(r) for r in learning.hand], [softmax(r) for r in learning.method]
    won = 0
    for _ in range(num):
        kind = draw.choices(range(KINDS), learning.team.frequencies)[0]
        agent = draw.choices(range(KINDS), hand[kind])[0]
        done = draw.choices(range(KINDS), method[agent])[0]
        won += done == kind and draw.random() < learning.team.chances[agent]
    assert abs(won / num - learning.value()) < 4 * math.sqrt(0.25 / num)
    assert learning.largest_share() > 0.8


def test_even_pay_is_for_who_is_seldom_asked_and_told_apart_not_for_chance() -> None:
    from team_of_kinds import Learning, drawn

    learning = Learning(drawn(0, 0.0), 0)
    learning.shares = [0.7, 0.1, 0.1, 0.1]
    assert learning._paid("none", 0.1, 0.5, 0) == 0
    assert learning._paid("even", 0.1, 0.5, 1) == pytest.approx(0.1 * math.log(10))
    assert learning._paid("even", 0.1, 0.5, 0) < learning._paid("even", 0.1, 0.5, 1)
    assert learning._paid("told apart", 0.1, 0.1, 1) == pytest.approx(0.0)  # asked as often as by any kind


@pytest.mark.parametrize("seed", range(6))
def test_the_best_use_of_the_tools_is_one_of_four_plans(seed: int) -> None:
    from result15_rewards import drawn_toolbox

    game = drawn_toolbox(seed)
    guess = 1 / game.num_answers
    plans = (
        guess,
        1 - game.study_cost,
        game.sight + (1 - game.sight) * guess - game.look_cost,
        1 - game.look_cost - (1 - game.sight) * game.study_cost,
    )
    assert solve(game).value == pytest.approx(max(plans), abs=1e-12)


def table_of(**changed: Any) -> Any:
    from table_team import Table
    from toolbox import Toolbox

    return Table(Toolbox(**changed), 3)


def test_idle_calls_are_those_that_play_makes() -> None:
    from toolbox import idle, idle_calls

    table, num = table_of(), 8_000
    counted = []
    for instance in range(num):
        one = table.play(instance)
        told = [
            (table.board.states[s], table.board.options[s][c])
            for s, c in zip(one.states, one.choices, strict=True)
        ]
        counted.append(sum(idle(state, option) for state, option in told))
    assert abs(sum(counted) / num - idle_calls(table)) < 4 * 2 / math.sqrt(num)


def test_a_call_that_changes_nothing_is_worth_its_cost_and_no_more() -> None:
    """Play at random does not look at how many calls were made, so without an idle call all else is as it was."""
    from toolbox import CALLS, credit, idle

    table, seen = table_of(most_calls=60, num_answers=2), 0
    for instance in range(150):
        group = [table.play(instance) for _ in range(2)]
        for one, mine in zip(group, credit(table, [group], "left out", 0.0), strict=True):
            for state, choice, worth in zip(one.states, one.choices, mine, strict=True):
                option = table.board.options[state][choice]
                if option in CALLS and idle(table.board.states[state], option):
                    game = table.board.game
                    price = {
                        "call look": game.look_cost,
                        "call study": game.study_cost,
                        "call tidy": game.tidy_cost,
                    }
                    assert worth == pytest.approx(-price[option], abs=1e-12)
                    seen += 1
    assert seen > 200


def test_what_a_call_is_paid() -> None:
    from toolbox import CALLS, credit

    table = table_of()
    group = [table.play(5) for _ in range(4)]
    calls = [
        sum(table.board.options[s][c] in CALLS for s, c in zip(o.states, o.choices, strict=True))
        for o in group
    ]
    right = [o.rewards[-1] == 1 for o in group]
    for paid, more in (
        ("outcome", [0.0] * 4),
        ("a call", [0.3 * n for n in calls]),
        ("a call if right", [0.3 * n * r for n, r in zip(calls, right, strict=True)]),
        ("once if right", [0.3 * (n > 0) * r for n, r in zip(calls, right, strict=True)]),
        ("overpriced", [-0.3 * n for n in calls]),
    ):
        totals = [one.value + each for one, each in zip(group, more, strict=True)]
        for one, total, mine in zip(group, totals, credit(table, [group], paid, 0.3), strict=True):
            assert mine == pytest.approx([total - (sum(totals) - total) / 3] * len(one.states)), paid


def test_scores_as_a_potential_add_up_and_those_of_the_optimum_are_advantages() -> None:
    from step_scores import Scorer, credit
    from table_team import Table

    game = Pandora(scales=(1.0, 0.7), costs=(0.05, 0.1), num_levels=3)
    table, solution = Table(game, 2), solve(game)
    group = [table.play(instance) for instance in range(20)]
    for kind in ("exact", "off", "likes length"):
        scorer = Scorer(table, kind)
        for one, alone, later in zip(
            group, credit(scorer, [group], "alone"), credit(scorer, [group], "to go"), strict=True
        ):
            assert math.fsum(alone) + scorer.of(one.states[0], 0) == pytest.approx(one.value)
            for place, each in enumerate(later):
                to_come = math.fsum(one.rewards[place:])
                assert each == pytest.approx(to_come - scorer.of(one.states[place], place))
    exact = Scorer(table, "exact")
    means: dict[tuple[int, int], list[float]] = {}
    for instance in range(4_000):
        one = table.play(instance)
        for state, choice, worth in zip(
            one.states, one.choices, credit(exact, [[one]], "alone")[0], strict=True
        ):
            means.setdefault((state, choice), []).append(worth)
    for (state, choice), found in means.items():
        at, option = table.board.states[state], table.board.options[state][choice]
        if len(found) > 300:
            true = solution.q(at)[option] - solution.values[at]
            assert abs(sum(found) / len(found) - true) < 0.06, (at, option)
