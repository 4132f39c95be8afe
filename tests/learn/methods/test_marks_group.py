"""Methods that compare whole rollouts of one task: their formulas, written out, against the recipes."""

from __future__ import annotations

import math

import pytest
import torch
from marked import marked
from paper_batch import check_loss, clipped, logprobs, make_batch, old, ours

from baton.learn.recipe import load


@marked(["dr-grpo", "grpo"], ["policies", "rollouts"])
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


def test_what_was_called_grpo_is_another_number() -> None:
    groups = make_batch((4, 4))
    assert ours("team-advantage", groups).loss != pytest.approx(ours("grpo", groups).loss, rel=0.05)
