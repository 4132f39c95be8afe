"""What the recipes' methods need beyond the loop: judges, runs without somebody, trees, values of agents."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import reward_of
from baton.credit.core.acts import turns
from baton.credit.estimator import CreditError
from baton.engine.scripted import ScriptedEngine
from baton.learn.crediting import Crediting, _add
from baton.learn.recipe import CreditPart, Recipe, RolloutPart, load
from baton.learn.rollouts import branched, lockstep
from baton.learn.scoring import Judging, Scoring, outcome_of
from baton.learn.stage import Episode, Stage
from baton.team.forks import Forks
from baton.team.intervene import BarAgent, OnlyAgents
from baton.trace.records import Credit
from baton.trace.trace import Trace


def recipe_of(name: str) -> Recipe:
    recipe = load(name)
    return structs.replace(recipe, team=structs.replace(recipe.team, max_tokens=4096))


def stage_of(name: str) -> Stage:
    return make_stage(recipe_of(name))


def play(stage: Stage, count: int, instance: int | None = None) -> list[Trace]:
    engines = dict.fromkeys(stage.roles, stage.script("reference"))
    episodes = [
        Episode(name=f"t{n}", instance=n if instance is None else instance, seed=n) for n in range(count)
    ]
    return asyncio.run(stage.play(engines, episodes))


def forks_of(stage: Stage) -> Forks:
    script = lockstep({"main": stage.script("reference")})["main"]
    engines = dict.fromkeys(stage.roles, script)
    return Forks(
        stage.team(engines, stage.assignment(0), 0),
        lambda t: stage.assignment(t.header.meta["train"]["instance"]),
    )


def scored(name: str, count: int = 3) -> tuple[list[Trace], int]:
    stage = stage_of(name)
    scoring = Scoring(reward_of(recipe_of(name).reward))
    traces = play(stage, count)

    async def score() -> tuple[list[Trace], int]:
        gold, tokens = await Judging(stage, scoring.rules).gold(traces, lambda: forks_of(stage))
        return scoring.score(traces, gold), tokens

    return asyncio.run(score())


def own(trace: Trace, name: str) -> dict[str, float]:
    return {reward.target: reward.value for reward in trace.rewards if reward.name == name}


def test_judges_know_the_subtask() -> None:
    traces, tokens = scored("m-grpo")
    assert tokens == 0
    for trace in traces:  # all right: main 0.1 + 0.9, sub 0.1 + 0.4 + 0.5
        assert own(trace, "m-grpo") == pytest.approx({"orchestrator": 1.0, "worker1": 1.0, "worker2": 1.0})
    (trace, *_), _ = scored("mae")  # ten of ten: quality 1, solver 1, so difficulty 0, and format 1
    assert own(trace, "mae") == pytest.approx({"planner1": 1.0, "executor1": 1.0, "critic1": 1.0})


def test_runs_without_somebody() -> None:
    traces, _ = scored("ccpo")  # the executor reads the shards without a plan as well: no gap
    assert own(traces[0], "ccpo") == pytest.approx(
        {"lead": 1.0, "planner1": 1.0, "executor1": 1.0, "critic1": 1.0}
    )


def test_sharp_shares_by_shapley_values() -> None:
    """a R + b phi_i + c tool_i, phi by the formula over all four coalitions, each run again here."""
    forks = forks_of(stage_of("sharp"))
    traces, tokens = scored("sharp")
    assert tokens > 0

    async def worth(trace: Trace, barred: list[str]) -> float:
        gone = [BarAgent(name) for name in barred]
        nobody_else = OnlyAgents(("worker1", "worker2"))  # nobody may stand in for who is missing
        return outcome_of((await forks.fork(trace, [*gone, nobody_else])).trace)

    for trace in traces:
        one, two = "worker1", "worker2"
        both = outcome_of(trace)
        alone = {one: asyncio.run(worth(trace, [two])), two: asyncio.run(worth(trace, [one]))}
        nobody = asyncio.run(worth(trace, [one, two]))
        phi = {
            name: ((alone[name] - nobody) + (both - alone[other])) / 2
            for name, other in ((one, two), (two, one))
        }
        phi["orchestrator"] = both - phi[one] - phi[two]
        tools = {one: 0.95, two: 0.95, "orchestrator": 0.0}  # one call each, used, at its price
        expected = {name: 0.9 * both + 0.9 * phi[name] + 0.1 * tools[name] for name in phi}
        assert own(trace, "sharp") == pytest.approx(expected)


def test_a_rollout_that_cannot_be_read_earns_nothing() -> None:
    stage = stage_of("marsrl")
    scoring = Scoring(reward_of(recipe_of("marsrl").reward))
    good = play(stage, 1)
    mute = ScriptedEngine("mute", lambda request: "hm" if request.role == "solver" else "return accept")
    bad = asyncio.run(stage.play(dict.fromkeys(stage.roles, mute), [Episode(name="bad", instance=0, seed=0)]))

    async def gold(traces: list[Trace]) -> list[Trace]:
        known, _ = await Judging(stage, scoring.rules).gold(traces, lambda: forks_of(stage))
        return scoring.score(traces, known)

    read, unread = asyncio.run(gold([*good, *bad]))
    assert own(read, "marsrl") == {"solver1": 1.0, "verifier1": 1.0}
    assert set(own(unread, "marsrl").values()) == {0.0}


def test_branches_share_what_came_before() -> None:
    stage = stage_of("c3")
    drawn = iter(range(1000))  # an engine that never says the same twice
    odd = lockstep({"main": ScriptedEngine("odd", lambda r: f"hm {next(drawn)}\n{_reference(stage, r)}")})[
        "main"
    ]
    engines = dict.fromkeys(stage.roles, odd)
    trace = asyncio.run(stage.play(engines, [Episode(name="t", instance=3, seed=1)]))[0]
    forks = Forks(stage.team(engines, stage.assignment(3), 1), lambda t: stage.assignment(3))
    tree = asyncio.run(branched([trace], RolloutPart(fan_out=(3, 2)), forks))
    assert len(tree) == 6
    assert len({each.trace_id for each in tree}) == 6
    said = [[each.text(each.call_by_id[turn.call].completion_ref) for turn in turns(each)] for each in tree]
    assert len({each[0] for each in said}) == 1
    assert len({each[1] for each in said}) == 3
    assert len({tuple(each) for each in said}) == 6
    assert all(outcome_of(each) == 1.0 for each in tree)


def _reference(stage: Stage, request: object) -> str:
    from baton.tasks.shard_sum import play as reference

    return reference(request)  # type: ignore[arg-type]  # as the engine asks it


def test_running_means_are_kept_and_centred_credit_sums_to_nothing() -> None:
    stage = stage_of("spiral")
    crediting = Crediting(recipe_of("spiral"), {"reward": outcome_of})
    traces = play(stage, 2, instance=1)
    first = asyncio.run(crediting.credit([traces], lambda: forks_of(stage)))
    values = [
        credit.value for trace in first.traces for credit in trace.credits if credit.target == "debater"
    ]
    assert values == pytest.approx([1.0, 0.95])
    other = Crediting(recipe_of("spiral"), {"reward": outcome_of})
    other.load_state_dict(crediting.state_dict())
    second = asyncio.run(other.credit([traces], lambda: forks_of(stage)))
    assert second.traces[0].credits[0].value == pytest.approx(1 - 0.0975)
    centred = structs.replace(
        recipe_of("spiral"), credit=(structs.replace(recipe_of("spiral").credit[0], centre=True),)
    )
    found = asyncio.run(Crediting(centred, {"reward": outcome_of}).credit([traces], lambda: forks_of(stage)))
    assert sum(credit.value for trace in found.traces for credit in trace.credits) == pytest.approx(0.0)


@pytest.mark.parametrize("normalise", [False, True])
def test_credits_that_are_all_alike_leave_nothing_once_centred(normalise: bool) -> None:
    """Not their rounding either, which normalised would be as large as any credit."""
    stage = stage_of("spiral")
    part = structs.replace(recipe_of("spiral").credit[0], centre=True, normalise=normalise)
    trace = play(stage, 1, instance=1)[0]
    credits = [
        Credit(unit="role", target="debater", value=value, estimator="role-ema")
        for value in (0.7, 0.7, 0.7, 0.7, 0.7, 0.1 + 0.6)
    ]
    layers: dict[str, list[Credit]] = {trace.trace_id: []}
    _add(part, {trace.trace_id: credits}, layers)
    assert [credit.value for credit in layers[trace.trace_id]] == [0.0] * 6


def test_a_run_without_any_credit_ends_and_says_why() -> None:
    stage = stage_of("c3")
    recipe = structs.replace(recipe_of("c3"), credit=(CreditPart(estimator="siblings"),))
    crediting = Crediting(recipe, {"reward": outcome_of})
    alike = [play(stage, 2, instance=1)]  # scripted, so no two rollouts part anywhere
    for _ in range(2):
        assert not any(
            t.credits for t in asyncio.run(crediting.credit(alike, lambda: forks_of(stage))).traces
        )
    with pytest.raises(CreditError, match="no two of these"):
        asyncio.run(crediting.credit(alike, lambda: forks_of(stage)))


def test_settings_change_a_rewards_rules() -> None:
    weights = Scoring(reward_of(load("parl").reward))
    assert weights.weights() == pytest.approx({"success": 1.0, "parallel": 0.3, "finish_rate": 0.2})
    assert weights.rules != Scoring(reward_of(structs.replace(load("parl").reward, settings={}))).rules
