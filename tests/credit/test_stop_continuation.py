"""What a stop is held against: the best that could follow, or what the policy itself would have done. Exact values."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from math import fsum

import numpy as np
import pytest
from game_teams import play

from baton.cli import main
from baton.credit import ESTIMATORS
from baton.credit.estimators.stop_replay import stop_value
from baton.credit.estimators.stop_value import (
    backward,
    cell_fit,
    decisions_of,
    drawn_onward,
    stop_chance,
    stop_options,
    stopped,
)
from baton.games.game import Game, State
from baton.games.library import make_game
from baton.games.on_team import read_state
from baton.trace import Event

STEPS, UP = 5, 0.6


def walks(num: int) -> np.ndarray:
    """How often each of many drafts has got better by each step; its score is ups - 0.5 steps."""
    draw = np.random.default_rng(0)
    ups = np.cumsum(draw.random((num, STEPS)) < UP, axis=1)
    return np.concatenate([np.zeros((num, 1)), ups], axis=1)


def chance(ups: float, step: int) -> float:
    """A policy that stops when it had better not: after good steps."""
    return 0.1 + 0.7 * ups / max(1, step)


def exact(continuation: str) -> dict[tuple[int, int], float]:
    """The worth of going on, by plain backward induction."""
    value: dict[tuple[int, int], float] = {}
    onward: dict[tuple[int, int], float] = {}
    for step in range(STEPS, -1, -1):
        for ups in range(step + 1):
            now = ups - 0.5 * step
            if step == STEPS:
                value[step, ups] = now
                continue
            on = UP * value[step + 1, ups + 1] + (1 - UP) * value[step + 1, ups]
            p = chance(ups, step)
            onward[step, ups] = on
            value[step, ups] = max(now, on) if continuation == "optimal" else p * now + (1 - p) * on
    return onward


@pytest.mark.parametrize("continuation", ["optimal", "policy"])
def test_backward_regression_finds_the_worth_of_going_on(continuation: str) -> None:
    ups = walks(6000)
    steps = np.arange(STEPS + 1)
    scores = ups - 0.5 * steps
    chances = np.array([[chance(u, t) for t, u in enumerate(row)] for row in ups])
    found = backward(
        scores, ups[..., None], fit=cell_fit, stop_chances=chances if continuation == "policy" else None
    )
    true = exact(continuation)
    for (step, count), worth in true.items():
        if (ups[:, step] == count).sum() > 200:
            assert found.go_on(step, [[float(count)]])[0] == pytest.approx(worth, abs=0.08)
    assert true[0, 0] - exact("policy")[0, 0] > 0.05 or continuation == "policy"  # the two are not the same


def policy_of(game: Game) -> dict[State, Mapping[str, float]]:
    found: dict[State, Mapping[str, float]] = {}
    todo = [branch.state for branch in game.start()]
    while todo:
        state = todo.pop()
        options = game.options(state)
        if state in found or not options:
            continue
        found[state] = {"stop draft": 0.5, "wait any": 0.5} if len(options) == 2 else {options[0]: 1.0}
        todo += [b.state for option in options for b in game.step(state, option)]
    return found


def own_advantage(game: Game, chances: Mapping[State, Mapping[str, float]]) -> dict[tuple[State, str], float]:
    """Q - V of a policy at every state and option, by plain recursion over the game."""
    known: dict[State, float] = {}

    def q(state: State, option: str) -> float:
        return fsum(p * (r + value(s)) for p, s, r in game.step(state, option))

    def value(state: State) -> float:
        if state not in known:
            known[state] = fsum(p * q(state, option) for option, p in chances.get(state, {}).items())
        return known[state]

    return {
        (state, option): q(state, option) - value(state)
        for state in chances
        for option in game.options(state)
    }


def test_the_policys_own_continuation_is_its_exact_advantage() -> None:
    """On the stopping chain, played at a coin's toss, whose Q - V is not that of who stops when it is best."""
    game = make_game("stopping-chain", {})
    chances = policy_of(game)
    worth = own_advantage(game, chances)
    group, forks = play("stopping-chain", 60, lambda state: chances[state])
    off: dict[str, list[float]] = {}
    for continuation in ("policy", "optimal"):
        credits = asyncio.run(stop_value(group, runner=forks, score_known=True, continuation=continuation))  # type: ignore[arg-type]
        for trace, mine in zip(group, credits, strict=True):
            for credit in mine:
                event = trace.event(credit.target)
                state = read_state(event.extra["step"]["state"])
                option = "stop draft" if stopped(event) else "wait any"
                assert stop_chance(event) == 0.5
                off.setdefault(continuation, []).append(credit.value - worth[state, option])
                assert any(continuation in note for note in credit.assumes)
        assert {c.target for c in credits[0]} <= {event.id for event in decisions_of(group[0])}
    assert np.abs(off["policy"]).mean() < 0.02
    assert np.abs(off["policy"]).mean() < 0.6 * np.abs(off["optimal"]).mean()


def test_of_several_ways_to_go_on_one_is_drawn_as_the_policy_would() -> None:
    event = Event(
        id="e", t=0.0, type="orchestrator_decision", agent="a", seq=1, options=("stop 1", "wait any", "wait all", "x"),
        choice=0, option_propensities=(0.5, 0.1, 0.4, 0.0),
    )  # fmt: skip
    drawn = Counter(drawn_onward(event, stop_options, str(k)) for k in range(2000))
    assert set(drawn) == {"wait any", "wait all"}
    assert drawn["wait all"] / 2000 == pytest.approx(0.8, abs=0.04)


def test_every_estimand_that_is_not_the_policys_own_advantage_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "best that could follow" in ESTIMATORS["stop-value"].estimand
    assert main(["credit", "--list"]) == 0
    assert "best that could follow" in capsys.readouterr().out
    assert main(["credit", "--list", "--json"]) == 0
    listed = {each["name"]: each["estimand"] for each in json.loads(capsys.readouterr().out)}
    assert listed["stop-value"] == ESTIMATORS["stop-value"].estimand
    assert all(listed.values())
