"""Orchestrator decisions, messages, tool calls."""

from __future__ import annotations

import math
from statistics import pstdev

import pytest
from credit_teams import by_target, group_of, make_trace
from msgspec import structs
from scipy import stats

from baton.credit import CreditError
from baton.credit.estimator import Prefix
from baton.credit.estimators.event import coma, critical_steps, reinforce_cost, siblings, step_cost
from baton.credit.estimators.group import tool_group
from baton.trace import Event, Reward
from baton.trace.acts import chosen, unit_of
from baton.trace.graph.stages import Stages


def event(type_: str, **more: object) -> Event:
    return Event(id="e", t=0.0, type=type_, agent="a", seq=1, **more)  # type: ignore[arg-type]


def test_every_event_stands_in_one_unit_or_none() -> None:
    assert unit_of(event("message", decision="communicate")) == "message"
    assert unit_of(event("return")) == "message"
    assert unit_of(event("message", decision="delegate")) == "orchestrator"
    assert unit_of(event("spawn", decision="spawn")) == "orchestrator"
    assert unit_of(event("tool_call", status="failed")) == "tool_call"
    assert unit_of(event("orchestrator_decision", call="c", status="invalid")) == "orchestrator"
    for nobodys in (
        event("tool_result"),
        event("human_intervention"),
        event("despawn"),
        event("orchestrator_decision", decision="stop", status="forced"),
        event("message", extra={"intervention": "replace"}),
    ):
        assert unit_of(nobodys) is None
        assert not chosen(nobodys)


# -- decisions ------------------------------------------------------------------------------------


def test_coma_is_the_choice_against_its_policy() -> None:
    asked: list[int] = []

    def q(prefix: Prefix, option: str) -> float:
        asked.append(prefix.num_events)
        return {"spawn": 1.0, "stop": 0.2}[option]

    found = by_target(coma([make_trace()], q=q)[0])
    assert found == pytest.approx({"lead#1": 1.0 - 0.8, "lead#2": 0.2})
    assert asked == [0, 0, 1, 1]


def test_coma_names_what_is_missing() -> None:
    trace = make_trace()
    blind = structs.replace(
        trace, events=tuple(structs.replace(e, option_propensities=None) for e in trace.events)
    )
    with pytest.raises(CreditError, match="lead#1: its options are recorded and their probabilities are not"):
        coma([blind], q=lambda *_: 0.0)
    bare = structs.replace(trace, events=tuple(structs.replace(e, options=None) for e in trace.events))
    with pytest.raises(CreditError, match="option_propensities"):
        coma([bare], q=lambda *_: 0.0)


def test_critical_steps_cost_what_the_longest_branch_costs() -> None:
    narrow, wide = make_trace("a", 1.0, workers=1), make_trace("b", 1.0, workers=4)
    assert Stages.of(narrow).critical_steps == Stages.of(wide).critical_steps == 4
    found = critical_steps([narrow, wide])
    assert {c.value for mine in found for c in mine} == {0.0}  # width is free, so nobody is ahead
    assert {c.target.partition("#")[0] for c in found[1]} == {"lead"}
    by_outcome = critical_steps(group_of([0.0, 1.0]), price=0.0)
    assert by_outcome[1][0].value == pytest.approx(1 / math.sqrt(2), rel=1e-3)


def test_reinforce_with_cost_is_the_recursion() -> None:
    trace = make_trace(total=1.0, workers=1)
    found = [c.value for c in reinforce_cost([trace], factors={"searcher": 2.0})[0]]
    # spawn (10 + 9 + 6 tokens, the child's role), aggregate (8), stop (0)
    costs = [step_cost(0, 3, 25, 2.0), step_cost(1, 3, 8), step_cost(2, 3, 0)]
    assert costs[0] == pytest.approx(0.1 * math.log(1 + 1 / 4) / math.log(2) * 2 * 25 / 1e5)
    last = 1.0 - costs[2]
    middle = -costs[1] + 0.99 * last
    assert found == pytest.approx([-costs[0] + 0.99 * middle, middle, last])


def test_a_forced_stop_is_never_trained_as_chosen() -> None:
    trace = make_trace(total=1.0, workers=1, stop_status="forced")
    found = by_target(reinforce_cost([trace], gamma=0.5)[0])
    stop = trace.events[-1]
    assert stop.id not in found
    assert found["lead#5"] == pytest.approx(0.5, abs=1e-3)  # its outcome still counts for what came before
    for name in (critical_steps(group_of([0.0, 1.0], stop_status="forced")), siblings_or_nothing()):
        assert all(not c.target.endswith("#6") for mine in name for c in mine)


def siblings_or_nothing() -> list:  # type: ignore[type-arg]
    group = group_of([0.0, 1.0], stop_status="forced")
    with pytest.raises(CreditError, match="no siblings to compare"):
        siblings(group, unit="orchestrator")
    return []


# -- messages -------------------------------------------------------------------------------------


def test_siblings_are_compared_at_the_same_context() -> None:
    group = [
        make_trace("a", 1.0, workers=1, said=["x"]),
        make_trace("b", 0.5, workers=1, said=["x"]),
        make_trace("c", 0.0, workers=1, said=["y"]),
        make_trace("d", 0.2, workers=1, said=["z"]),
    ]
    found = [by_target(c) for c in siblings(group)]
    for mine, own in zip(found, (1.0, 0.5, 0.0, 0.2), strict=True):
        assert mine["w1#4"] == pytest.approx(
            own - (1.7 - own) / 3
        )  # each draw counts, also the two that say x
    (credit,) = (c for c in siblings(group)[0] if c.target == "w1#4")
    plain = math.sqrt(1 + 1 / 3) * pstdev([0.5, 0.0, 0.2]) * math.sqrt(1.5)
    wide = stats.t.ppf(0.975, (4 / 3) ** 2 / (1 / 2 + 1 / 18)) / stats.norm.ppf(0.975)
    assert credit.stderr == pytest.approx(plain * wide, rel=2e-3)
    seen = [by_target(c) for c in siblings(group, context="observation")]
    assert seen == found


def test_rollouts_that_parted_before_are_no_siblings() -> None:
    group = [make_trace("a", 1.0, workers=1, said=["x"]), make_trace("b", 0.0, workers=2, said=["y"])]
    with pytest.raises(CreditError, match="baton fork"):
        siblings(group)


# -- tool calls -----------------------------------------------------------------------------------


def test_tool_calls_are_compared_with_calls_of_the_same_tool() -> None:
    rewards = [
        Reward(family="tool", unit="tool_call", target="w1#3", value=1.0),
        Reward(family="tool", unit="tool_call", target="w2#6", value=0.0),
    ]
    found = by_target(tool_group([make_trace(more_rewards=rewards)], eps=0.0)[0])
    assert found == pytest.approx({"w1#3": math.sqrt(0.5), "w2#6": -math.sqrt(0.5)})
    with pytest.raises(CreditError, match="rewards on tool calls"):
        tool_group([make_trace()])
