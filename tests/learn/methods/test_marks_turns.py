"""Methods that give credit to turns: their formulas, written out, against the recipes."""

from __future__ import annotations

import copy
import math

import torch
from marked import marked
from msgspec import structs
from paper_batch import (
    Rollout,
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
    starts,
    token_mean,
)

from baton.learn.recipe import load
from baton.trace import Sampling, Trace


def gae(rewards: list[float], values: list[float], gamma: float, lambda_: float) -> list[float]:
    """sum_l (gamma lambda)^l delta_{t+l}, the sum written out."""
    ahead = [*values[1:], 0.0]
    deltas = [r + gamma * v1 - v0 for r, v0, v1 in zip(rewards, values, ahead, strict=True)]
    return [
        sum((gamma * lambda_) ** step * delta for step, delta in enumerate(deltas[place:]))
        for place in range(len(deltas))
    ]


def central(groups: list[list[Rollout]], gamma: float, lambda_: float) -> Worth:
    """Through all turns of a rollout; the critic says a tenth of the number of events before."""
    worth: Worth = {}
    for group in groups:
        for rollout in group:
            before = starts(rollout)
            values = [0.1 * before[turn.call] for turn in rollout.turns]
            rewards = [turn.own for turn in rollout.turns]
            rewards[-1] += rollout.total
            found = gae(rewards, values, gamma, lambda_)
            worth |= {(rollout.name, t.call): value for t, value in zip(rollout.turns, found, strict=True)}
    return worth


CRITIC = {"value": lambda prefix: 0.1 * prefix.num_events}


def brought_to_one_size(worth: Worth, *, centre: bool = False) -> Worth:
    level = sum(worth.values()) / len(worth) if centre else 0.0
    size = math.sqrt(sum((value - level) ** 2 for value in worth.values()) / len(worth))
    return {key: (value - level) / size for key, value in worth.items()}


@marked(["marft"], ["policies"])
def test_weights_for_every_role(recipe: str) -> None:
    speaking = {"planner", "executor", "critic"}
    found = [set(part.roles) & speaking for part in load(recipe).policies.values()]
    assert found == [{"planner"}, {"executor"}, {"critic"}]


@marked(["marft"], ["credit", "loss", "entropy"])
def test_one_ratio_an_action_and_centred_advantages(recipe: str) -> None:
    """Mean over actions of min(s A, clip(s, .8, 1.2) A) + .01 H, s the product of the tokens' ratios."""
    groups = make_batch((3, 3), seed=21, own=True)
    for _, turn in every_turn(groups):  # near the policy, or every action's product is out of bounds
        turn.old = [value / 100 for value in turn.old]
    fresh = ours(recipe, groups, given=CRITIC)
    for _, turn in every_turn(groups):
        drawn = logprobs(fresh.weights, turn).detach().tolist()
        turn.old = [value + 0.04 * math.sin(place + len(drawn)) for place, value in enumerate(drawn)]
    found = ours(recipe, groups, given=CRITIC)
    worth = brought_to_one_size(central(groups, 0.99, 0.95), centre=True)
    check_advantages(found, groups, worth)
    actions = []
    for rollout, turn in every_turn(groups):
        ratio = torch.exp((logprobs(found.weights, turn) - old(turn)).sum())
        ids = torch.tensor([turn.prompt + turn.said])
        logits = found.weights(input_ids=ids, use_cache=False).logits[0, len(turn.prompt) - 1 : -1]
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        actions.append(clipped(ratio, worth[rollout.name, turn.call]) + 0.01 * entropy)
    check_loss(found, torch.stack(actions).mean())


@marked(["mappo", "turn-ppo"], ["credit"])
def test_advantages_through_everybody_s_turns(recipe: str) -> None:
    groups = make_batch((3, 2), seed=22, own=True)
    lambda_ = 0.9 if recipe == "turn-ppo" else 0.95
    worth = brought_to_one_size(central(groups, 0.99, lambda_))
    check_advantages(ours(recipe, groups, given=CRITIC), groups, worth)


@marked(["ippo"], ["credit"])
def test_advantages_along_each_agent_s_own_turns(recipe: str) -> None:
    groups = make_batch((3, 2), seed=23, own=True)
    worth: Worth = {}
    for group in groups:
        for rollout in group:
            before = starts(rollout)
            for agent in rollout.agents():
                mine = [turn for turn in rollout.turns if turn.agent == agent]
                values = [0.1 * before[turn.call] for turn in mine]
                rewards = [turn.own for turn in mine]
                rewards[-1] += rollout.total
                found = gae(rewards, values, 0.99, 0.95)
                worth |= {(rollout.name, t.call): value for t, value in zip(mine, found, strict=True)}
    check_advantages(ours(recipe, groups, given=CRITIC), groups, brought_to_one_size(worth))


@marked(["gigpo"], ["credit", "loss", "kl"])
def test_the_rollout_s_advantage_and_that_in_its_state(recipe: str) -> None:
    """A = A_E + A_S, A_S over all turns in one state of the group by r_t + .95 G_{t+1}; mean over tokens, KL .01."""
    groups = make_batch((4, 3), seed=24, own=True)
    for group in groups:
        for rollout in group:
            rollout.turns[0].prompt = [1, 2, 3]
            rollout.turns[1].prompt = [4, len(rollout.turns) % 2]
        group[0].turns[-1].prompt = group[1].turns[0].prompt  # the lead comes back to where it began
    found = ours(recipe, groups)
    worth: Worth = {}
    for group in groups:
        whole = scores([r.total + sum(turn.own for turn in r.turns) for r in group], 1e-6)
        pools: dict[tuple[str, tuple[int, ...]], list[tuple[str, str, float]]] = {}
        for rollout in group:
            for place, turn in enumerate(rollout.turns):
                rewards = [each.own for each in rollout.turns[place:]]
                rewards[-1] += rollout.total
                ahead = sum(0.95**step * reward for step, reward in enumerate(rewards))
                pools.setdefault((turn.role, tuple(turn.prompt)), []).append((rollout.name, turn.call, ahead))
        assert any(len(pool) > len(group) for pool in pools.values())
        for pool in pools.values():
            for (name, call, _), score in zip(pool, scores([v for _, _, v in pool], 1e-6), strict=True):
                worth[name, call] = score
        for rollout, score in zip(group, whole, strict=True):
            for turn in rollout.turns:
                worth[rollout.name, turn.call] += score
    check_advantages(found, groups, worth)
    penalty = []
    for _, turn in every_turn(groups):
        gap = logprobs(found.reference, turn).detach() - logprobs(found.weights, turn)
        penalty.append(torch.exp(gap) - gap - 1)
    check_loss(found, token_mean(found, groups, worth) - 0.01 * torch.cat(penalty).mean())


@marked(["at-grpo"], ["policies", "rollouts"])
def test_role_policies_and_samples_of_which_the_best_goes_on(recipe: str) -> None:
    """That the best is gone on with is in tests/learn/test_branching.py."""
    plan = load(recipe)
    assert [part.roles[0] for part in plan.policies.values()] == ["planner", "executor", "critic"]
    assert plan.rollout.grow == "best"
    assert {plan.rollout.group_size, *plan.rollout.fan_out} == {4}


@marked(["at-grpo"], ["reward", "credit", "loss"])
def test_samples_of_one_agent_from_one_state(recipe: str) -> None:
    """r = R + own, (r - mean) / deviation over one agent's turns from the same prompt; mean over tokens, clipped."""
    groups = make_batch((4, 3), seed=25, own=True)
    for group in groups:
        for rollout in group:
            rollout.turns[0].prompt = [1, 2, 3]
            rollout.turns[1].prompt = [4, len(rollout.turns) % 2]
    found = ours(recipe, groups)
    worth: Worth = {}
    for group in groups:
        pools: dict[tuple[str, tuple[int, ...]], list[tuple[str, str, float]]] = {}
        for rollout in group:
            for turn in rollout.turns:
                key = (turn.agent, tuple(turn.prompt))
                pools.setdefault(key, []).append((rollout.name, turn.call, rollout.total + turn.own))
        for pool in pools.values():
            for (name, call, _), score in zip(pool, scores([value for _, _, value in pool]), strict=True):
                worth[name, call] = score
    check_advantages(found, groups, worth)
    check_loss(found, token_mean(found, groups, worth))


def test_what_branches_share_is_one_draw() -> None:
    """A branch of the first rollout repeats its first turn: that turn is no second sample of it."""
    [group] = make_batch((3,), seed=26)
    for rollout in group:
        rollout.turns[0].prompt = [1, 2, 3]
    branch = copy.deepcopy(group[0])
    branch.name, branch.total = "branch", 9.0
    for turn in branch.turns[1:]:
        turn.said[0] = (turn.said[0] + 1) % 60

    def keyed(trace: Trace) -> Trace:
        """The branch draws all but its first turn for itself."""
        calls = []
        for number, call in enumerate(trace.calls):
            drawn_in = group[0].name if trace.trace_id == "branch" and number == 0 else trace.trace_id
            calls.append(structs.replace(call, sampling=Sampling(key=f"{drawn_in}/{call.id}")))
        return structs.replace(trace, calls=tuple(calls))

    found = ours("at-grpo", [[*group, branch]], change=keyed)
    wanted = scores([rollout.total for rollout in group])
    for rollout, score in zip([*group, branch], [*wanted, wanted[0]], strict=True):
        assert math.isclose(found.advantages[rollout.name]["lead:1"][0], score, rel_tol=1e-6)


@marked(["maporl"], ["credit"])
def test_an_answer_also_earns_by_later_rounds(recipe: str) -> None:
    """[v(t,i) + sum_{t'>t} .3^(t'-t) mean_j v(t',j)] / sum .3^(t'-t), less the batch's mean."""
    groups = make_batch((3, 3), seed=27, own=True)
    worth: Worth = {}
    for group in groups:
        for rollout in group:
            rounds: dict[int, list[float]] = {}
            places: dict[str, int] = {}
            for turn in rollout.turns:
                place = sum(other.agent == turn.agent for other in rollout.turns[: rollout.turns.index(turn)])
                places[turn.call] = place
                rounds.setdefault(place, []).append(turn.own)
            last = max(rounds)
            for turn in rollout.turns:
                top, below = turn.own, 1.0
                for later in range(places[turn.call] + 1, last + 1):
                    weight = 0.3 ** (later - places[turn.call])
                    top += weight * sum(rounds[later]) / len(rounds[later])
                    below += weight
                worth[rollout.name, turn.call] = top / below
    mean = sum(worth.values()) / len(worth)
    worth = {key: value - mean for key, value in worth.items()}
    check_advantages(ours(recipe, groups), groups, worth)


@marked(["fold-grpo"], ["credit"])
def test_the_clipped_return_with_the_turn_s_own_reward(recipe: str) -> None:
    """(clip(R + Q, 0, 1) - mean R) / deviation: Q = +-.2 by the branch's scope, -1 on a main line that is too long and
    neither branches nor ends."""
    groups = make_batch((5, 4), seed=28)
    limit = 6
    for rollout in (rollout for group in groups for rollout in group):
        rollout.total = abs(rollout.total) / 2

    def kept_to_its_scope(rollout_name: str, agent: str) -> bool | None:
        return {"w1": True, "w2": False, "w3": None}[agent]

    worth: Worth = {}
    for group in groups:
        totals = [rollout.total for rollout in group]
        mean = sum(totals) / len(totals)
        deviation = math.sqrt(sum((t - mean) ** 2 for t in totals) / (len(totals) - 1))
        for rollout in group:
            for turn in rollout.turns:
                verdict = None if turn.agent == "lead" else kept_to_its_scope(rollout.name, turn.agent)
                extra = 0.0 if verdict is None else 0.2 if verdict else -0.2
                value = min(1.0, max(0.0, rollout.total + extra))
                worth[rollout.name, turn.call] = (value - mean) / (deviation + 1e-4)
    plan = load(recipe, [f"credit.0.settings.main_limit_tokens={limit}"])
    given = {"in_scope": lambda trace, agent: kept_to_its_scope(trace.trace_id, agent)}
    check_advantages(ours(plan, groups, given=given), groups, worth)
