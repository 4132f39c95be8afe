from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from credit_teams import by_target, group_of, make_trace
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from scipy import stats

from baton.credit import CreditError
from baton.credit.estimator import Prefix
from baton.credit.estimators.gae import advantages, gae, token_gae
from baton.credit.estimators.turn import branch_scope, maporl, return_to_go, tree_backup, turn_group
from baton.trace import Event, Reward, Trace


def on_turn(call: str, value: float) -> Reward:
    return Reward(family="process", unit="turn", target=call, value=value)


def test_the_same_turn_of_the_same_agent_is_a_group() -> None:
    group = [
        make_trace("a", 0.0, more_rewards=[on_turn("w1:2", 1.0)]),
        make_trace("b", 0.0, more_rewards=[on_turn("w1:2", 3.0)]),
        make_trace("c", 0.0, workers=3),
    ]
    found = [by_target(c) for c in turn_group(group, eps=0.0)]
    scale = np.std([1, 3, 0], ddof=1)
    assert found[0]["w1:2"] == pytest.approx((1 - 4 / 3) / scale)
    assert found[1]["w1:2"] == pytest.approx((3 - 4 / 3) / scale)
    assert found[0]["w1:1"] == 0.0
    assert found[2]["w3:1"] == 0.0  # alone in its group
    assert list(found[0])[:3] == ["lead:1", "w1:1", "w1:2"]


def test_the_same_state_can_mean_the_same_prompt() -> None:
    group = group_of([0.0, 1.0])
    assert turn_group(group, state="context")[0][0].value < 0
    bare = Trace(header=group[0].header, events=group[0].events, rewards=group[0].rewards)
    with pytest.raises(CreditError, match="prompt of call lead:1 was not recorded"):
        turn_group([bare], state="context")


def test_return_to_go_looks_ahead_only() -> None:
    group = [
        make_trace("a", 1.0, workers=1, more_rewards=[on_turn("w1:1", 0.5)]),
        make_trace("b", 0.0, workers=1),
    ]
    found = [by_target(c) for c in return_to_go(group)]
    # w1: returns to go 1.5, 1 in one rollout and 0, 0 in the other
    assert found[0]["w1:1"] == pytest.approx(1.5 - 2.5 / 4)
    assert found[0]["w1:2"] == pytest.approx(1.0 - 2.5 / 4)
    assert found[1]["w1:2"] == pytest.approx(-2.5 / 4)
    every = [c for mine in return_to_go(group) for c in mine if c.target.startswith("w1")]
    assert math.fsum(c.value for c in every) == pytest.approx(0)
    by_role = [by_target(c) for c in return_to_go(group, per="role", gamma=0.5)]
    assert by_role[0]["lead:1"] == pytest.approx(0.5 - 1.5 / 4)


def test_maporl_weighs_what_all_reach_later() -> None:
    rewards = [on_turn("w1:1", 1.0), on_turn("w2:2", 4.0)]
    found = by_target(maporl([make_trace(more_rewards=rewards)])[0])
    later = (0 + 0 + 4) / 3  # second turns of lead, w1, w2
    assert found["w1:1"] == pytest.approx((1 + 0.3 * later) / 1.3)
    assert found["lead:1"] == pytest.approx(0.3 * later / 1.3)
    assert found["w2:2"] == pytest.approx(4.0)
    with pytest.raises(CreditError, match="no rewards on turns"):
        maporl([make_trace()])


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=8),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_advantages_are_the_sum_in_the_formula(
    steps: list[tuple[float, float]], gamma: float, lambda_: float
) -> None:
    rewards, values = [r for r, _ in steps], [v for _, v in steps]
    ahead = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, v, after in zip(rewards, values, ahead, strict=True)]
    for t, found in enumerate(advantages(rewards, values, gamma, lambda_)):
        expected = math.fsum((gamma * lambda_) ** k * delta for k, delta in enumerate(deltas[t:]))
        assert found == pytest.approx(expected, abs=1e-9)


def test_a_central_critic_runs_through_all_agents() -> None:
    asked: list[Prefix] = []

    def value(prefix: Prefix) -> float:
        asked.append(prefix)
        return prefix.num_events / 10

    trace = make_trace(total=1.0, workers=1)
    found = [c.value for c in gae([trace], value=value, gamma=1.0, lambda_=0.0)[0]]
    starts = [0, 1, 3, 4]  # places of the first events of lead:1, w1:1, w1:2, lead:2
    assert [p.num_events for p in asked] == starts
    assert {p.agent for p in asked} == {None}
    assert found == pytest.approx([0.1, 0.2, 0.1, 1 - 0.4])
    assert math.fsum(found) == pytest.approx(1.0 - 0.0)  # telescopes to R - V(empty)


def test_a_local_critic_runs_along_each_agent() -> None:
    asked: list[tuple[str | None, int]] = []

    def value(prefix: Prefix) -> float:
        asked.append((prefix.agent, prefix.num_events))
        return 0.0

    own = Reward(family="individual", unit="agent", target="w1", value=0.5)
    trace = make_trace(total=1.0, workers=1, more_rewards=[own])
    found = by_target(gae([trace], value=value, critic="local", gamma=0.5, lambda_=1.0)[0])
    assert asked == [("lead", 0), ("lead", 4), ("w1", 1), ("w1", 3)]
    assert found == pytest.approx({"lead:1": 0.5, "w1:1": 0.75, "w1:2": 1.5, "lead:2": 1.0})


def test_token_gae_needs_a_value_before_each_token() -> None:
    trace = make_trace(total=1.0, workers=1)
    found = by_target(
        token_gae([trace], value=lambda _, call: [0.25] * len(call.completion_ids or ()), lambda_=0.0)[0]
    )
    assert found["lead:2:5"] == pytest.approx(0.75)
    assert found["lead:2:4"] == 0.0
    assert len(found) == sum(len(c.completion_ids or ()) for c in trace.calls)
    with pytest.raises(CreditError, match="gave 1 values for call lead:1, which has 3"):
        token_gae([trace], value=lambda *_: [0.0])
    bare = Trace(header=trace.header, events=trace.events, rewards=trace.rewards)
    with pytest.raises(CreditError, match="records no completion tokens"):
        token_gae([bare], value=lambda *_: [0.0])


def test_branches_out_of_scope_pay() -> None:
    group = [make_trace("a", 0.5, tool_status="failed"), make_trace("b", 0.0)]
    scope = {"w1": True, "w2": False}
    found = [by_target(c) for c in branch_scope(group, in_scope=lambda _, agent: scope.get(agent), eps=0.0)]
    scale = np.std([0.5, 0.0], ddof=1)
    assert found[0]["w1:2"] == pytest.approx((0.7 - 0.25) / scale)
    assert found[0]["w2:2"] == pytest.approx((0.3 - 0.25) / scale)
    assert found[0]["w1:1"] == pytest.approx((0.0 - 0.25) / scale)  # 0.5 + 0.2 - 1, clipped
    assert found[0]["lead:1"] == pytest.approx((0.5 - 0.25) / scale)
    assert found[1]["w2:1"] == pytest.approx((0.0 - 0.25) / scale)  # clipped at zero


def test_a_group_of_equal_returns_leaves_the_process_reward_as_it_is() -> None:
    group = [make_trace("a", 0.5, tool_status="failed"), make_trace("b", 0.5)]
    found = by_target(branch_scope(group, eps=0.0)[0])
    assert found["lead:1"] == 0.0
    assert found["w1:1"] == pytest.approx(-0.5)  # clip(0.5 - 1) - 0.5, not divided by nearly nothing


@pytest.mark.parametrize(("total", "size"), [(0.5, 6), (0.7, 6), (0.1, 12), (0.9, 9)])
def test_the_process_reward_of_equal_returns_does_not_depend_on_rounding(total: float, size: int) -> None:
    group = group_of([total] * size)
    for mine in branch_scope(group, in_scope=lambda _, agent: agent == "w1", eps=0.0):
        assert {credit.stderr for credit in mine} == {None}  # they do not tell how far their mean may be off
        found = by_target(mine)
        assert found["lead:1"] == pytest.approx(0.0, abs=1e-12)
        assert found["w1:1"] == pytest.approx(min(0.2, 1 - total))
        assert found["w2:1"] == pytest.approx(-min(0.2, total))


def test_a_long_main_context_pays_unless_it_branches_or_finishes() -> None:
    plain, branching = (
        branch_scope(group_of([1.0, 0.0]), main_limit_tokens=0),
        branch_scope(group_of([1.0, 0.0])),
    )
    assert by_target(plain[0]) == by_target(branching[0])  # both of lead's turns send out or finish
    group = group_of([1.0, 0.0])
    more = Event(
        id="lead#n", t=99.0, type="message", agent="lead", seq=99, call="lead:2", decision="communicate"
    )
    quiet = [
        structs.replace(
            trace, events=(*(e for e in trace.events if e.decision not in ("stop", "aggregate")), more)
        )
        for trace in group
    ]
    found = by_target(branch_scope(quiet, main_limit_tokens=2)[0])
    assert found["lead:2"] < 0 < found["lead:1"]


def test_values_back_up_the_tree_by_children() -> None:
    # After the same first three turns, w1 says "x" in two rollouts and "y" in one.
    group = [
        make_trace("a", 1.0, workers=1, said=["x"]),
        make_trace("b", 0.0, workers=1, said=["x"]),
        make_trace("c", 0.0, workers=1, said=["y"]),
    ]
    found = [by_target(c) for c in tree_backup(group, threshold=0.0)]
    assert found[0]["w1:2"] == pytest.approx(0.5)
    assert found[2]["w1:2"] == 0.0
    assert found[0]["w1:1"] == pytest.approx(0.25)  # of two children, not of three rollouts
    labels = [by_target(c) for c in tree_backup(group, label=True, threshold=0.4)]
    assert labels[0]["w1:2"] == 1.0
    assert labels[0]["w1:1"] == -1.0


def test_traces_without_calls_have_no_turns() -> None:
    trace = make_trace()
    events = tuple(type(e)(id=e.id, t=e.t, type=e.type, agent=e.agent, seq=e.seq) for e in trace.events)
    with pytest.raises(CreditError, match="names no calls"):
        return_to_go([Trace(header=trace.header, events=events, rewards=trace.rewards)])


def test_turns_of_one_rollout_do_not_tell_how_well_their_baseline_is_known() -> None:
    """The error is over rollouts: with one it is not known, and of rollouts whose turns are worth the same it is
    that of a mean over rollouts."""

    def errors(group: list[Trace]) -> set[float | None]:
        return {c.stderr for mine in return_to_go(group) for c in mine if c.target.startswith("w1")}

    totals = [0.0, 1.0, 2.0, 3.0]
    assert errors([make_trace("a", 1.0)]) == {None}
    wide = stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)
    for mine, others in zip(return_to_go(group_of(totals)), combinations(totals[::-1], 3), strict=True):
        [error] = {c.stderr for c in mine if c.target.startswith("w1")}
        assert error == pytest.approx(stats.sem(others) * wide * 3 / 4, rel=1e-3)
    assert errors(group_of([1.0, 1.0])) == {None}
