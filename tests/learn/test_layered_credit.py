"""Orchestrator, message and agent trained together: the layers of a recipe add up to the coarsest."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict

import pytest
from msgspec import structs

from baton.compose.training import check_trainable, make_stage
from baton.credit.project import tokens_of
from baton.errors import UsageError
from baton.learn.crediting import Crediting, advantages
from baton.learn.recipe import CreditPart, Recipe, load
from baton.learn.rollouts import lockstep
from baton.learn.stage import Episode, Stage
from baton.team.forks import Forks
from baton.trace.acts import unit_of
from baton.trace.records import Credit
from baton.trace.trace import Trace

AGENT = CreditPart(estimator="difference")
MESSAGE = CreditPart(estimator="telescope", unit="message", roles=("worker",))
SPAWN = CreditPart(estimator="telescope", unit="orchestrator", decisions=("spawn",))
TEAM = CreditPart(estimator="mean")


def recipe_of(*parts: CreditPart) -> Recipe:
    recipe = load("layers")
    return structs.replace(recipe, credit=parts, team=structs.replace(recipe.team, max_tokens=4096))


def earned(trace: Trace) -> float:
    """A return that varies with what was done and with the rollout, of forks too (`t3~...`)."""
    return math.sin(7.0 * len(trace.events) + 3.0 * int(trace.trace_id[1]))


@pytest.fixture(scope="module")
def played() -> tuple[Stage, list[Trace]]:
    stage = make_stage(recipe_of(AGENT))
    engines = dict.fromkeys(stage.roles, stage.script("reference"))
    episodes = [Episode(name=f"t{n}", instance=n % 2, seed=n) for n in range(5)]  # groups of 3 and of 2
    return stage, asyncio.run(stage.play(engines, episodes))


def credited(played: tuple[Stage, list[Trace]], *parts: CreditPart) -> list[Trace]:
    stage, traces = played

    def forks() -> Forks:
        engines = dict.fromkeys(stage.roles, lockstep({"main": stage.script("reference")})["main"])
        team = stage.team(engines, stage.assignment(0), 0)
        return Forks(team, lambda t: stage.assignment(t.header.meta["train"]["instance"]))

    crediting = Crediting(recipe_of(*parts), {"reward": earned})
    return asyncio.run(crediting.credit([traces[::2], traces[1::2]], forks)).traces


@pytest.mark.parametrize("leaves_workers_open", [True, False])
def test_they_add_up_to_the_agents(leaves_workers_open: bool, played: tuple[Stage, list[Trace]]) -> None:
    """For every agent with an event that no finer layer covers, its own, its messages' and its spawns' credit come to
    its difference reward; an agent without one has the finer ones alone."""
    alone = {t.trace_id: {c.target: c.value for c in t.credits} for t in credited(played, AGENT)}
    open_, closed = 0, 0
    fine_part = (
        MESSAGE if leaves_workers_open else structs.replace(MESSAGE, unit=None)
    )  # None: all three units
    for trace in credited(played, SPAWN, AGENT, fine_part):
        given: dict[str, list[float]] = defaultdict(list)
        covered = set()
        for credit in trace.credits:
            fine = credit.unit != "agent"
            covered |= {credit.target} if fine else set()
            given[trace.event(credit.target).agent if fine else credit.target].append(credit.value)
        has_own = {c.target for c in trace.credits if c.unit == "agent"}
        for agent, value in alone[trace.trace_id].items():
            mine = {e.id for e in trace.events if e.agent == agent and unit_of(e) is not None}
            assert (agent in has_own) == (not mine <= covered)
            if agent in has_own:
                open_ += 1
                assert math.fsum(given[agent]) == pytest.approx(value, abs=1e-12)
            closed += agent not in has_own
        reached = advantages(trace)  # and all of it goes to tokens
        assert any(any(values) for values in reached.values())
    assert open_
    assert bool(closed) == (not leaves_workers_open)


def test_one_layer_is_as_it_was(played: tuple[Stage, list[Trace]]) -> None:
    for parts in ((AGENT,), (MESSAGE,), (SPAWN,), (TEAM,)):
        for trace in credited(played, *parts):
            for credit in trace.credits:
                assert credit.estimator == parts[0].estimator
                for call, places in tokens_of(trace, credit).items():
                    assert [advantages(trace)[call][p] for p in places] == [credit.value] * len(places)


def test_a_teams_layer_is_left_with_the_rest(played: tuple[Stage, list[Trace]]) -> None:
    means = {t.trace_id: t.credits[0].value for t in credited(played, TEAM)}
    for trace in credited(played, TEAM, SPAWN):
        fine = [c.value for c in trace.credits if c.unit == "orchestrator"]
        (team,) = (c for c in trace.credits if c.unit == "team")
        assert fine
        assert team.value == pytest.approx(means[trace.trace_id] - math.fsum(fine), abs=1e-12)
        assert isinstance(team, Credit)
        assert team.stderr is None


def test_what_cannot_be_layered_is_refused_before_any_weights_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("weights were made")

    monkeypatch.setattr("baton.compose.training.starting_models", never)
    for parts in ((AGENT, CreditPart(estimator="shapley")), (SPAWN, CreditPart(estimator="agent-group"))):
        with pytest.raises(UsageError, match=r"credit\.0"):
            check_trainable(recipe_of(*parts))
    check_trainable(load("layers"))
