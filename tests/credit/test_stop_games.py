"""Stop credit on games, whose stops have exact values: what is forced is open there, and scores are the game's."""

from __future__ import annotations

import asyncio
from math import fsum

import numpy as np
import pytest
from game_teams import play
from msgspec import structs

from baton.credit.estimator import CreditError, Credits
from baton.credit.estimators.stop_replay import continued, shadows, stop_value
from baton.credit.estimators.stop_value import decisions_of, stop_chance, stop_options, stopped
from baton.games.game import State
from baton.games.library import make_game
from baton.games.on_team import read_state, steps_of
from baton.games.solve import solve
from baton.team.action import Action, Wait
from baton.team.budget import Limits
from baton.trace.outcome import team_return
from baton.trace.records import Credit, Event
from baton.trace.trace import Trace


def state_of(event: Event) -> State:
    return read_state(event.extra["step"]["state"])


def earned_before(trace: Trace, event: Event) -> float:
    told = (step for step in steps_of(trace.events) if trace.events[step.event].seq < event.seq)
    return fsum(step.reward for step in told)


def by_target(credits: Credits) -> list[dict[str, Credit]]:
    return [{credit.target: credit for credit in found} for found in credits]


@pytest.mark.parametrize(
    ("name", "surface"), [("stopping-chain", "lines"), ("stopping-chain", "tools"), ("pandora", "lines")]
)
def test_shadow_scores_are_the_games_own_values(name: str, surface: str) -> None:
    game = make_game(name, {})
    group, forks = play(name, 12, surface=surface)
    for trace in group:
        whole = asyncio.run(continued(forks, trace))
        assert len(game.options(state_of(decisions_of(whole)[-1]))) == 1  # nothing was left but to stop
        decisions = decisions_of(whole)
        found = asyncio.run(shadows(forks, whole, decisions))
        for event, shadow in zip(decisions, found, strict=True):
            (stop,) = (option for option in game.options(state_of(event)) if option.startswith("stop"))
            (branch,) = game.step(state_of(event), stop)
            assert shadow.score == pytest.approx(earned_before(whole, event) + branch.reward)
        last = decisions_of(trace)[-1]
        assert stopped(last)
        assert found[len(decisions_of(trace)) - 1].score == pytest.approx(team_return(trace))


def test_several_stops_are_each_scored_and_weighed_by_their_chances() -> None:
    """Sequential test: yes and no are both open, and which is better depends on the evidence."""
    game = make_game("sequential-test", {})
    group, forks = play(
        "sequential-test", 40, lambda _: {"stop yes": 0.3, "stop no": 0.1, "spawn tester: look": 0.6}
    )
    for trace in group:
        for shadow in asyncio.run(shadows(forks, trace, decisions_of(trace))):
            assert shadow.by_option.keys() == {"stop yes", "stop no"}
            assert shadow.score == pytest.approx(
                0.75 * shadow.by_option["stop yes"] + 0.25 * shadow.by_option["stop no"]
            )
    credits = by_target(asyncio.run(stop_value(group, runner=forks, max_steps=4)))
    right, wrong = [], []
    for trace, found in zip(group, credits, strict=True):
        last = decisions_of(trace)[-1]
        answer, evidence = last.extra["step"]["option"], state_of(last)[1]
        if abs(evidence) >= 2:
            best = answer == game.quit(state_of(last))
            (right if best else wrong).append(found[last.id].value)
    assert np.mean(right) > np.mean(wrong) + 0.3


def test_credit_is_that_of_dynamic_programming() -> None:
    """Stops and choices to go on get their own sign, though both are decisions about stopping."""
    game = make_game("stopping-chain", {})
    solution = solve(game)
    group, forks = play("stopping-chain", 100)
    credits = by_target(asyncio.run(stop_value(group, runner=forks, score_known=True)))
    estimates, exact, kinds = [], [], set()
    for trace, found in zip(group, credits, strict=True):
        for event in decisions_of(trace):
            if len(event.options or ()) < 2:
                assert event.id not in found  # nobody could have gone on
                continue
            q, p, ended = solution.q(state_of(event)), stop_chance(event), stopped(event)
            assert ended == (event.extra["step"]["option"] == "stop draft")
            gap = q["wait any"] - q["stop draft"]
            estimates.append(found[event.id].value)
            exact.append(-(1 - p) * gap if ended else p * gap)
            kinds.add(ended)
    assert kinds == {True, False}
    assert np.corrcoef(estimates, exact)[0, 1] > 0.95
    assert np.abs(np.subtract(estimates, exact)).mean() < 0.03


def test_what_is_forced_and_refused_is_no_score() -> None:
    group, forks = play("stopping-chain", 8)
    decisions = decisions_of(group[0])
    with pytest.raises(
        CreditError, match=r"not carried out \(invalid\): that is not open to you now.*draft="
    ):
        asyncio.run(shadows(forks, group[0], decisions, draft=lambda trace, event: ""))
    with pytest.raises(CreditError, match="not carried out"):
        asyncio.run(stop_value(group, runner=forks, draft=lambda trace, event: "something else"))

    def wait_for_all(trace: Trace, event: Event) -> Action:
        return Wait(mode="all")

    with pytest.raises(CreditError, match=r"not carried out \(invalid\).*onward="):
        asyncio.run(continued(forks, group[0], onward=wait_for_all))


def test_a_stop_by_a_cap_gets_no_credit() -> None:
    group, forks = play("stopping-chain", 30, limits=Limits(calls=2))
    forced = [{e.id for e in trace.events if e.status == "forced"} for trace in group]
    assert any(forced)
    credits = by_target(asyncio.run(stop_value(group, runner=forks)))
    for mine, found in zip(forced, credits, strict=True):
        assert not mine & found.keys()
    assert any(credits)


def test_a_rollout_that_was_cut_off_before_any_choice_is_left_out() -> None:
    group, forks = play("stopping-chain", 20)
    cut = structs.replace(group[3], events=())
    credits = asyncio.run(stop_value([*group[:3], cut, *group[4:]], runner=forks))
    assert not credits[3]
    assert sum(map(bool, credits)) > 10
    with pytest.raises(CreditError, match="in none of these 1 traces"):
        asyncio.run(stop_value([cut], runner=forks))


def test_stops_are_read_from_both_surfaces() -> None:
    lines, tools = (play("stopping-chain", 1, surface=name)[0][0].events[0] for name in ("lines", "tools"))
    assert stop_options(lines) == ("stop draft",)
    assert stop_options(tools) == (tools.options or ())[:1]
    assert "draft" in stop_options(tools)[0]
