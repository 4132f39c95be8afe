"""The counting critic against the solver: the same values from enough play, and the exact ones from its own counts."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from small_run import BASE

from baton.compose.stage_from_recipe import make_stage
from baton.credit.estimator import CreditError, Prefix
from baton.engine.table import TableEngine
from baton.games.solve import solve
from baton.learn.critics.table import TableCritic, choice_points
from baton.learn.options import Asked
from baton.learn.recipe import parse
from baton.learn.stage import Episode, Stage
from baton.trace.trace import Trace

RECIPE = BASE + '[[credit]]\nestimator = "coma"\n[critic]\n'


def played(count: int, first: int = 0, **settings: object) -> tuple[Stage, list[Trace]]:
    stage = make_stage(parse(RECIPE, changes=[f"task.settings.{k}={v}" for k, v in settings.items()]))
    episodes = [Episode(name=f"t{n}", instance=n, seed=n) for n in range(first, first + count)]
    engines = dict.fromkeys(stage.roles, TableEngine(epsilon=1.0))
    return stage, asyncio.run(stage.play(engines, episodes))


def first_choice(trace: Trace) -> Prefix:
    return Prefix(trace, choice_points(trace)[0].place)


def values(critic: TableCritic, trace: Trace) -> dict[str, float]:
    prefix = first_choice(trace)
    return {option: critic.q(prefix, option) for option in trace.events[prefix.num_events].options or ()}


def test_at_their_best_later_choices_give_the_solvers_values() -> None:
    stage, traces = played(1500)
    critic = TableCritic(backup="best", prior=0.0)
    critic.observe(traces)
    game = stage.game
    assert game is not None
    exact = solve(game).q(game.start()[0].state)
    found = values(critic, traces[0])
    assert found["stop draft"] == pytest.approx(exact["stop draft"])
    assert found["wait any"] == pytest.approx(exact["wait any"], abs=0.03)


def test_returns_as_they_turned_out_are_plain_means() -> None:
    _, traces = played(60)
    critic = TableCritic(backup="return", prior=0.0)
    critic.observe(traces)
    waited = [t for t in traces if choice_points(t)[0].choice == 1]
    returns = [math.fsum(point.reward for point in choice_points(t)) for t in waited]
    assert values(critic, traces[0])["wait any"] == pytest.approx(math.fsum(returns) / len(returns))


def test_under_its_own_policy_a_value_is_the_mean_of_its_options() -> None:
    _, traces = played(200)
    critic = TableCritic(backup="policy", prior=0.0)
    critic.observe(traces)
    found = values(critic, traces[0])
    assert critic.value(first_choice(traces[0])) == pytest.approx(sum(found.values()) / 2)


def test_a_value_along_a_trace_ends_with_its_return() -> None:
    _, traces = played(50)
    critic = TableCritic(backup="best")
    critic.observe(traces)
    trace = max(traces, key=lambda t: len(t.events))
    earned = math.fsum(point.reward for point in choice_points(trace))
    assert critic.value(Prefix(trace, len(trace.events))) == pytest.approx(earned)


def test_best_first_goes_from_the_best_to_the_policys_own() -> None:
    _, traces = played(200)

    def value(backup: str, times: int) -> float:
        critic = TableCritic(backup=backup, prior=0.0, num_steps=4)  # type: ignore[arg-type]
        for _ in range(times):
            critic.observe(traces)
        return critic.value(first_choice(traces[0]))

    assert value("best-first", 1) == pytest.approx(value("best", 1))
    assert value("best-first", 5) == pytest.approx(value("policy", 5))
    falling = [value("best-first", times) for times in range(1, 6)]
    assert all(a > b for a, b in pairwise(falling))


def test_the_policy_is_asked_about_what_may_follow_and_did_not_come_up() -> None:
    """Else a situation would be judged for ever by the policy of its last visit."""
    _, traces = played(200)
    once = [trace for trace in traces if len(choice_points(trace)) == 1]
    waited = next(trace for trace in traces if len(choice_points(trace)) > 1)
    points = choice_points(waited)
    asked: list[Asked] = []

    def ask(those: Sequence[Asked]) -> dict[Asked, tuple[float, ...]]:
        asked.extend(those)
        return {each: tuple(float(n == 0) for n in range(len(each.options))) for each in those}

    stale, critic = TableCritic(prior=0.0), TableCritic(prior=0.0, ask=ask)
    for each in (stale, critic):
        each.observe(traces)
        assert not asked
        each.observe(once)
    assert points[1].asked in asked
    assert points[0].asked not in asked
    later = Prefix(waited, points[1].place)
    earned = points[0].reward
    assert critic.value(later) - earned == pytest.approx(critic.q(later, points[1].options[0]))
    assert critic.value(later) != pytest.approx(stale.value(later))


def test_few_visits_are_drawn_to_the_average() -> None:
    _, traces = played(200)
    gaps = []
    for prior in (0.0, 10.0, 1e9):
        critic = TableCritic(backup="policy", prior=prior)
        critic.observe(traces)
        found = values(critic, traces[0])
        gaps.append(abs(found["wait any"] - found["stop draft"]))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] == pytest.approx(0.0, abs=1e-4)


def test_what_is_tried_seldom_is_worth_more_at_first_and_no_more_in_the_end() -> None:
    _, traces = played(40)
    one = [t for t in traces if choice_points(t)[0].choice == 1]
    few = [*one, *[t for t in traces if choice_points(t)[0].choice == 0][:1]]

    def found(times: int, **settings: float) -> dict[str, float]:
        critic = TableCritic(backup="return", num_steps=times, **settings)  # type: ignore[arg-type]
        for _ in range(times + 1):
            critic.observe(few)
        critic._num_observed -= times  # as it was after the first step
        return values(critic, traces[0])

    plain, keen = found(3), found(3, optimism=1.0)
    assert keen["stop draft"] - plain["stop draft"] > keen["wait any"] - plain["wait any"] > 0
    warm = found(3, temperature=1.0)
    assert warm["wait any"] - plain["wait any"] == pytest.approx(math.log(2))
    critic = TableCritic(num_steps=3, optimism=1.0, temperature=1.0)
    cold = TableCritic(num_steps=3)
    for _ in range(4):
        critic.observe(few)
        cold.observe(few)
    assert values(critic, traces[0]) == values(cold, traces[0])


def test_it_goes_on_from_its_state() -> None:
    _, traces = played(120)
    whole, before, after = (TableCritic(backup="best-first", num_steps=3, optimism=0.1) for _ in range(3))
    whole.observe(traces[:60])
    before.observe(traces[:60])
    after.load_state_dict(before.state_dict())
    for critic in (whole, after):
        critic.observe(traces[60:])
    assert values(after, traces[0]) == values(whole, traces[0])


def test_a_choice_it_has_not_seen_is_an_error() -> None:
    _, traces = played(1)
    with pytest.raises(CreditError, match="Observe the trace first"):
        values(TableCritic(), traces[0])


def circle() -> TableCritic:
    """Two situations that lead to each other nine times in ten: sweeps come ever closer to 13 and never there."""
    critic = TableCritic(prior=3.0)
    state = critic.state_dict()
    a, b = "0a", "0b"
    state |= {
        "cells": {key: [[10, 13.0, {other: 9, "": 1}]] for key, other in ((a, b), (b, a))},
        "chances": {a: [1.0], b: [1.0]},
        "depth": {a: 1, b: 1},
        "values": {},
        "levels": None,
    }
    critic.load_state_dict(state)
    return critic


def test_a_circle_goes_on_to_the_last_digit() -> None:
    before = circle()
    assert before._values[b"\x0a"] == pytest.approx(13.0, abs=1e-7)
    after = TableCritic(prior=3.0)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after._values == before._values
    assert after._levels == before._levels


def test_a_checkpoint_from_before_levels_were_kept_is_solved() -> None:
    before = circle()
    old = before.state_dict()
    del old["levels"]
    after = TableCritic(prior=3.0)
    after.load_state_dict(old)
    assert after._values == pytest.approx(before._values, abs=1e-8)
    assert after._levels == pytest.approx(before._levels, abs=1e-8)
