"""Methods that compare whole rollouts of one task: their formulas, written out, against the recipes."""

from __future__ import annotations

import math

import pytest
import torch
from marked import marked
from paper_batch import (
    Worth,
    check_advantages,
    check_loss,
    clipped,
    every_turn,
    logprobs,
    make_batch,
    old,
    ours,
    scores,
)

from baton.learn.recipe import RewardPart, load


@marked(["dr-grpo", "grpo", "gigpo"], ["policies", "rollouts"])
def test_one_policy_and_groups_of_rollouts(recipe: str) -> None:
    plan = load(recipe)
    [policy] = plan.policies.values()
    assert policy.train == "full"
    assert not policy.roles
    assert plan.rollout.group_size > 1
    assert plan.rollout.fan_out == ()
    assert {part.group_by for part in plan.credit} == {"instance"}
    assert (plan.train.epochs, plan.train.batches) == (1, 1)


@marked(["dr-grpo"], ["credit", "loss"])
def test_the_group_s_mean_and_a_constant_length(recipe: str) -> None:
    """A_i = R_i - mean R; sum over tokens, over a constant."""
    plan = load(recipe)
    groups = make_batch((3, 5))
    found = ours(recipe, groups)
    weight, objective = plan.credit[0].weight, torch.zeros((), dtype=torch.float64)
    for group in groups:
        mean = sum(rollout.total for rollout in group) / len(group)
        for rollout in group:
            advantage = rollout.total - mean
            for turn in rollout.turns:
                said = found.advantages[rollout.name][turn.call]
                assert said == [pytest.approx(weight * advantage)] * len(turn.said)
                ratio = torch.exp(logprobs(found.weights, turn) - old(turn))
                objective = objective + clipped(ratio, weight * advantage).sum()
    answers = sum(len(rollout.turns) for group in groups for rollout in group)
    assert plan.loss.length is not None
    check_loss(found, objective / (answers * plan.loss.length))


@marked(["grpo"], ["credit", "loss", "kl"])
def test_each_output_s_mean_and_a_kl(recipe: str) -> None:
    """1/G sum_i 1/|o_i| sum_t [min(rho A, clip(rho) A) - 0.04 (exp(r) - r - 1)], A as the group's score."""
    groups = make_batch((4, 4))
    found = ours(recipe, groups)
    objective = torch.zeros((), dtype=torch.float64)
    for group in groups:
        mean = sum(rollout.total for rollout in group) / len(group)
        deviation = math.sqrt(sum((rollout.total - mean) ** 2 for rollout in group) / (len(group) - 1))
        each = []
        for rollout in group:
            advantage = (rollout.total - mean) / deviation
            terms = []
            for turn in rollout.turns:
                assert found.advantages[rollout.name][turn.call] == [
                    pytest.approx(advantage, rel=1e-3)
                ] * len(turn.said)
                new = logprobs(found.weights, turn)
                gap = logprobs(found.reference, turn).detach() - new
                exact = (rollout.total - mean) / (deviation + 1e-4)
                terms.append(clipped(torch.exp(new - old(turn)), exact) - 0.04 * (torch.exp(gap) - gap - 1))
            each.append(torch.cat(terms).mean())
        objective = objective + torch.stack(each).mean() / len(groups)
    check_loss(found, objective)


@marked(["magrpo"], ["policies", "rollouts", "reward"])
def test_a_model_for_every_role_and_joint_rollouts(recipe: str) -> None:
    plan = load(recipe)
    speaking = {"planner", "executor", "critic"}
    assert [set(part.roles) & speaking for part in plan.policies.values()] == [
        {"planner"},
        {"executor"},
        {"critic"},
    ]
    assert all(part.train == "full" for part in plan.policies.values())
    assert (plan.rollout.group_size > 1, plan.rollout.fan_out, plan.reward) == (True, (), RewardPart())


@marked(["magrpo"], ["credit", "loss"])
def test_the_whole_answer_s_log_probability(recipe: str) -> None:
    """-1/S sum over answers of (R - mean R) sum_t log pi: no ratio, no clip, no length."""
    groups = make_batch((4, 3), seed=2)
    found = ours(recipe, groups)
    worth: Worth = {}
    for group in groups:
        mean = sum(rollout.total for rollout in group) / len(group)
        worth |= {(r.name, turn.call): r.total - mean for r in group for turn in r.turns}
    check_advantages(found, groups, worth)
    each = [worth[r.name, turn.call] * logprobs(found.weights, turn).sum() for r, turn in every_turn(groups)]
    check_loss(found, torch.stack(each).mean())


@marked(["rema"], ["policies", "rollouts", "turns of training"])
def test_two_models_that_learn_by_turns(recipe: str) -> None:
    plan = load(recipe)
    assert [part.roles for part in plan.policies.values()] == [("planner",), ("lead", "executor", "critic")]
    assert plan.train.freeze_by_turns >= 1
    assert (plan.rollout.group_size > 1, plan.rollout.fan_out) == (True, ())


@marked(["rema"], ["credit", "loss"])
def test_one_ratio_a_turn_and_each_rollout_s_mean_over_its_turns(recipe: str) -> None:
    """s = exp(mean over the turn's tokens of log rho); 1/G sum_i 1/T_i sum_turns min(s A, clip(s, .8, 1.2) A)."""
    groups = make_batch((4, 4), seed=3)
    found = ours(recipe, groups)
    worth: Worth = {}
    each = []
    for group in groups:
        for rollout, score in zip(group, scores([rollout.total for rollout in group]), strict=True):
            worth |= {(rollout.name, turn.call): score for turn in rollout.turns}
            turns = []
            for turn in rollout.turns:
                ratio = torch.exp((logprobs(found.weights, turn) - old(turn)).mean())
                turns.append(clipped(ratio, score))
            each.append(torch.stack(turns).mean())
    check_advantages(found, groups, worth)
    check_loss(found, torch.stack(each).mean())


@marked(["wideseek-r1"], ["policies", "rollouts"])
def test_lead_and_workers_share_weights_in_groups_of_eight(recipe: str) -> None:
    plan = load(recipe)
    assert [part.roles for part in plan.policies.values()] == [()]
    assert (plan.rollout.group_size, plan.rollout.fan_out) == (8, ())


@marked(["wideseek-r1"], ["credit", "loss"])
def test_each_rollout_s_mean_over_agents_of_the_mean_over_tokens(recipe: str) -> None:
    """1/G sum_i 1/N_i sum_agents 1/tokens sum_t, with the rollout's advantage for everybody."""
    groups = make_batch((5, 5), seed=4)
    found = ours(recipe, groups)
    worth: Worth = {}
    each = []
    for group in groups:
        for rollout, score in zip(group, scores([rollout.total for rollout in group]), strict=True):
            worth |= {(rollout.name, turn.call): score for turn in rollout.turns}
            agents = []
            for agent in rollout.agents():
                mine = [
                    clipped(torch.exp(logprobs(found.weights, turn) - old(turn)), score)
                    for turn in rollout.turns
                    if turn.agent == agent
                ]
                agents.append(torch.cat(mine).mean())
            each.append(torch.stack(agents).mean())
    check_advantages(found, groups, worth)
    check_loss(found, torch.stack(each).mean())


@marked(["softrankpo"], ["credit"])
def test_only_the_order_of_returns_counts(recipe: str) -> None:
    """A = Phi^-1((rank - 1/2)/G), by bisection on the error function; equals share their mean rank."""
    groups = make_batch((5, 4), seed=5)
    groups[0][3].total = groups[0][1].total
    found = ours(recipe, groups)
    worth: Worth = {}
    for group in groups:
        for rollout in group:
            below = sum(other.total < rollout.total for other in group)
            equal = sum(other.total == rollout.total for other in group)
            share = (below + (equal + 1) / 2 - 0.5) / len(group)
            low, high = -9.0, 9.0
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (
                    (middle, high) if math.erf(middle / math.sqrt(2)) < 2 * share - 1 else (low, middle)
                )
            worth |= {(rollout.name, turn.call): low for turn in rollout.turns}
    check_advantages(found, groups, worth)


def test_what_was_called_grpo_is_another_number() -> None:
    groups = make_batch((4, 4))
    assert ours("team-advantage", groups).loss != pytest.approx(ours("grpo", groups).loss, rel=0.05)
