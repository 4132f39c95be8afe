"""Methods that give credit to decisions and messages: their formulas, written out, against the recipes."""

from __future__ import annotations

import copy
import math

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
    old,
    ours,
    trace_of,
)

from baton.learn.recipe import load
from baton.trace import Trace

OPTIONS = ("spawn", "ask again", "stop", "wait")
CHANCES = (0.4, 0.3, 0.2, 0.1)


def value_of(num_events: int, option: str) -> float:
    return 0.1 * num_events + {"spawn": 0.3, "ask again": -0.2, "stop": 0.9, "wait": 0.05}[option]


@marked(["coma"], ["credit"])
def test_the_choice_against_what_the_policy_does_on_average(recipe: str) -> None:
    """Q(a) - sum pi(a') Q(a'), with four options; times the recipe's weight. It lands on the tokens of each choice."""
    groups = make_batch((3,), seed=31)
    plan = load(recipe)

    def chosen(trace: Trace) -> Trace:
        events = [
            structs.replace(event, options=OPTIONS, choice=place % 4, option_propensities=CHANCES)
            if event.decision in ("spawn", "delegate", "stop")
            else event
            for place, event in enumerate(trace.events)
        ]
        return structs.replace(trace, events=tuple(events))

    found = ours(
        plan, groups, given={"q": lambda prefix, option: value_of(prefix.num_events, option)}, change=chosen
    )
    for group in groups:
        for rollout in group:
            trace = trace_of(rollout)
            expected = {turn.call: [0.0] * len(turn.said) for turn in rollout.turns}
            for place, event in enumerate(trace.events):
                if event.decision == "communicate":
                    continue
                values = [value_of(place, option) for option in OPTIONS]
                worth = values[place % 4] - sum(p * v for p, v in zip(CHANCES, values, strict=True))
                assert event.call is not None
                assert event.span is not None
                mine = [other for other in trace.events if other.call == event.call]
                last = len(expected[event.call]) if event is mine[-1] else event.span[1]
                for token in range(event.span[0], last):
                    expected[event.call][token] = plan.credit[0].weight * worth
            for call, values in expected.items():
                assert found.advantages[rollout.name][call] == pytest.approx(values, abs=1e-6)


def to_go(rollout: Rollout) -> Worth:
    """R_t = r_t + .99 R_{t+1} over the decisions; a step costs .1 log(1 + (t+1)/(T+1)) / log 2 x tokens / 1e5."""
    workers = len(rollout.agents()) - 1
    spent: list[float] = []  # tokens from each decision to the next
    calls: list[str] = []
    for number, turn in enumerate(rollout.turns):
        if number == 0:
            spent, calls = [float(len(turn.said))] * workers, [turn.call] * workers
        elif turn.agent == "lead":
            spent.append(len(turn.said))
            calls.append(turn.call)
        else:
            spent[-1] += len(turn.said)
    ahead, found = rollout.total, {}
    for step in reversed(range(len(spent))):
        grown = math.log(1 + (step + 1) / (len(spent) + 1)) / math.log(2)
        ahead = -0.1 * grown * spent[step] / 1e5 + (0.99 if step < len(spent) - 1 else 1.0) * ahead
        found[rollout.name, calls[step]] = ahead
    return found


@marked(["puppeteer"], ["policies", "credit", "decisions"])
def test_returns_to_go_on_whom_to_ask_and_when_to_end(recipe: str) -> None:
    """The spawns of the first turn and what workers say have no credit and are not trained."""
    assert len(load(recipe).policies) == 1
    groups = make_batch((4, 3), seed=32)
    found = ours(recipe, groups)
    worth: Worth = {}
    for rollout, turn in every_turn(groups):
        decides = turn.agent == "lead" and turn is not rollout.turns[0]
        worth[rollout.name, turn.call] = to_go(rollout)[rollout.name, turn.call] if decides else 0.0
    check_advantages(found, groups, worth)
    trained = [
        worth[r.name, t.call] * logprobs(found.weights, t)
        for r, t in every_turn(groups)
        if worth[r.name, t.call]
    ]
    check_loss(found, torch.cat(trained).mean())


@marked(["parl"], ["policies"])
def test_workers_are_frozen(recipe: str) -> None:
    kinds = {part.roles: part.train for part in load(recipe).policies.values()}
    assert kinds == {("orchestrator",): "full", ("worker",): "frozen"}


@marked(["parl"], ["loss"])
def test_tokens_out_of_the_band_are_masked_whatever_the_sign(recipe: str) -> None:
    """-mean over tokens of 1[-ln 2 <= log rho <= ln 2] rho A."""
    groups = make_batch((4, 4), seed=33)
    found = ours(recipe, groups)
    terms = []
    for rollout, turn in every_turn(groups):
        gap = logprobs(found.weights, turn) - old(turn)
        inside = (gap.detach() >= -math.log(2)) & (gap.detach() <= math.log(2))
        advantage = torch.tensor(found.advantages[rollout.name][turn.call], dtype=torch.float64)
        terms.append(inside * torch.exp(gap) * advantage)
    every = torch.cat(terms)
    assert 0 < int((every == 0).sum()) < len(every)
    check_loss(found, every.mean())


@marked(["c3"], ["credit"])
def test_a_message_against_its_siblings_from_the_same_context(recipe: str) -> None:
    """Five messages after one context, two of them the same, each continued once: A_j = R_j - mean of the others'."""
    [[first, *_]] = make_batch((1,), seed=34)
    group = [copy.deepcopy(first) for _ in range(5)]
    for number, (rollout, total) in enumerate(zip(group, (0.2, 1.0, -0.4, 0.7, 0.1), strict=True)):
        rollout.name, rollout.total = f"r{number}", total
        rollout.turns[1].said[0] = min(number, 3)
        for turn in rollout.turns[2:]:
            turn.prompt = [*turn.prompt, number]
    found = ours(recipe, [group])
    worth: Worth = {(rollout.name, turn.call): 0.0 for rollout, turn in every_turn([group])}
    for rollout in group:
        others = [other.total for other in group if other is not rollout]
        worth[rollout.name, rollout.turns[1].call] = rollout.total - sum(others) / 4
    check_advantages(found, [group], worth)


@marked(["vdn"], ["value"])
def test_the_team_s_value_is_the_sum_of_the_agents(recipe: str) -> None:
    """Every agent is told the team's error R - sum_i Q_i."""
    groups = make_batch((3,), seed=35)
    values = {"lead": 0.3, "w1": -0.2, "w2": 0.5, "w3": 0.1}
    found = ours(recipe, groups, given={"q": lambda trace, agent: values[agent]})
    worth = {
        (rollout.name, turn.call): rollout.total - sum(values[agent] for agent in rollout.agents())
        for rollout, turn in every_turn(groups)
    }
    check_advantages(found, groups, worth)
