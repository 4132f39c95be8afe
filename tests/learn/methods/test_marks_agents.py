"""Methods that compare agents or roles with their own kind: their formulas, written out, against the recipes."""

from __future__ import annotations

import asyncio

import pytest
import torch
from marked import marked
from msgspec import structs
from paper_batch import (
    Rollout,
    Worth,
    check_advantages,
    check_loss,
    every_turn,
    logprobs,
    make_batch,
    ours,
    scores,
    total_of,
    trace_of,
)

from baton.learn.crediting import Crediting
from baton.learn.recipe import RewardPart, load
from baton.trace import Reward, Trace

OWN = {"lead": 0.4, "w1": -0.3, "w2": 1.1, "w3": 0.2}


def earned(rollout: Rollout, agent: str) -> float:
    """What a reward of its own gives an agent: no two rollouts the same."""
    return round(OWN[agent] * rollout.total + len(rollout.turns) / 10, 6)


def with_own(groups: list[list[Rollout]]) -> object:
    """Adds the agents' own rewards to traces."""
    by_name = {rollout.name: rollout for group in groups for rollout in group}

    def change(trace: Trace) -> Trace:
        rollout = by_name[trace.trace_id]
        more = [
            Reward(family="role", unit="agent", target=agent, value=earned(rollout, agent))
            for agent in rollout.agents()
        ]
        return structs.replace(trace, rewards=(*trace.rewards, *more))

    return change


@marked(["dr-mas", "m-grpo"], ["policies", "rollouts"])
def test_weights_for_each_role_and_groups_of_rollouts(recipe: str) -> None:
    plan = load(recipe)
    assert [part.roles for part in plan.policies.values()] == [("orchestrator",), ("worker",)]
    assert all(part.train == "full" for part in plan.policies.values())
    assert plan.rollout.group_size == (8 if recipe == "m-grpo" else 4)


@marked(["dr-mas", "difference", "shapley"], ["reward"])
def test_one_outcome_for_the_whole_team(recipe: str) -> None:
    assert load(recipe).reward == RewardPart()


@marked(["dr-mas"], ["credit"])
def test_each_agent_over_the_rollouts_it_took_part_in(recipe: str) -> None:
    """A_ik = (R_i - mu_k) / sigma_k; some rollouts have one worker, some three."""
    groups = make_batch((5, 4), seed=7)
    worth: Worth = {}
    for group in groups:
        for agent in ("lead", "w1", "w2", "w3"):
            there = [rollout for rollout in group if agent in rollout.agents()]
            for rollout, score in zip(
                there, scores([rollout.total for rollout in there] or [0.0]), strict=False
            ):
                worth |= {(rollout.name, t.call): score for t in rollout.turns if t.agent == agent}
    check_advantages(ours(recipe, groups), groups, worth)


@marked(["ccpo", "mae"], ["credit"])
def test_each_agent_s_own_reward_against_its_own_kind(recipe: str) -> None:
    """(r - mean) / deviation over what this agent earned in other rollouts: of its question, or of the whole batch."""
    groups = make_batch((4, 4), seed=8)
    plan = load(recipe)
    pools = [[rollout for group in groups for rollout in group]] if recipe == "mae" else groups
    assert plan.credit[0].group_by == ("task" if recipe == "mae" else "instance")
    worth: Worth = {}
    for pool in pools:
        for agent in OWN:
            there = [rollout for rollout in pool if agent in rollout.agents()]
            for rollout, score in zip(
                there, scores([earned(r, agent) for r in there] or [0.0]), strict=False
            ):
                worth |= {(rollout.name, t.call): score for t in rollout.turns if t.agent == agent}
    check_advantages(ours(recipe, groups, change=with_own(groups)), groups, worth)  # type: ignore[arg-type]


@marked(["m-grpo"], ["credit"])
def test_main_over_k_rollouts_and_sub_over_k_times_d(recipe: str) -> None:
    """Every rollout is brought to d sub-trajectories, the count that all of them reach here, by repeating in turn; an
    agent that stands there m times has m times its advantage."""
    groups = make_batch((6,), seed=9)
    [group] = groups
    width = max(len(rollout.agents()) - 1 for rollout in group)
    assert width > min(len(rollout.agents()) - 1 for rollout in group)
    main = scores([earned(rollout, "lead") for rollout in group])
    copies: list[tuple[str, str, float]] = []
    for rollout in group:
        subs = [agent for agent in rollout.agents() if agent != "lead"]
        copies += [
            (rollout.name, subs[n % len(subs)], earned(rollout, subs[n % len(subs)])) for n in range(width)
        ]
    worth: Worth = {}
    for rollout, score in zip(group, main, strict=True):
        worth |= {(rollout.name, turn.call): score for turn in rollout.turns if turn.agent == "lead"}
    for (name, agent, _), score in zip(copies, scores([value for _, _, value in copies]), strict=True):
        rollout = next(each for each in group if each.name == name)
        for turn in rollout.turns:
            if turn.agent == agent:
                worth[name, turn.call] = worth.get((name, turn.call), 0.0) + score
    check_advantages(ours(recipe, groups, change=with_own(groups)), groups, worth)  # type: ignore[arg-type]


@marked(["spiral"], ["policies"])
def test_one_model_plays_all_roles(recipe: str) -> None:
    assert [part.roles for part in load(recipe).policies.values()] == [()]


@marked(["spiral"], ["credit", "loss"])
def test_a_running_mean_for_each_role_and_reinforce(recipe: str) -> None:
    """A = R - b_role with b from before, b <- 0.95 b + 0.05 R; sum over tokens of -A log pi, over a constant."""
    groups = make_batch((3, 4), seed=10)
    found = ours(recipe, groups)
    mean = {"orchestrator": 0.0, "worker": 0.0}
    worth: Worth = {}
    for group in groups:
        for rollout in group:
            for role in mean:
                above = rollout.total - mean[role]
                mean[role] = 0.95 * mean[role] + 0.05 * rollout.total
                worth |= {(rollout.name, turn.call): above for turn in rollout.turns if turn.role == role}
    check_advantages(found, groups, worth)
    turns = every_turn(groups)
    each = [worth[rollout.name, turn.call] * logprobs(found.weights, turn).sum() for rollout, turn in turns]
    check_loss(found, torch.stack(each).sum() / (48 * len(turns)))


@marked(["difference"], ["credit"])
def test_the_return_less_the_return_without(recipe: str) -> None:
    groups = make_batch((3,), seed=11)
    without = {"lead": 0.0, "w1": 0.7, "w2": -0.2, "w3": 0.1}
    worth = {(r.name, turn.call): r.total - without[turn.agent] * r.total for r, turn in every_turn(groups)}
    crediting = Crediting(load(recipe), {"reward": total_of})

    async def known(group: list[Trace], _: object) -> object:
        return lambda trace, agent: without[agent] * total_of(trace)

    crediting._without = known  # type: ignore[assignment, method-assign]  # in place of runs without somebody
    traces = [[trace_of(rollout) for rollout in group] for group in groups]
    runner = type("NoForks", (), {"cost": type("Cost", (), {"tokens": 0})})
    credited = asyncio.run(crediting.credit(traces, runner)).traces  # type: ignore[arg-type]
    for trace in credited:
        for credit in trace.credits:
            turn = next(
                call for (name, call) in worth if name == trace.trace_id and call.startswith(credit.target)
            )
            assert credit.value == pytest.approx(worth[trace.trace_id, turn])
