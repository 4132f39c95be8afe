from __future__ import annotations

import math

import numpy as np
import pytest
from credit_teams import by_target, group_of, make_trace, returns_lists
from hypothesis import given
from hypothesis import strategies as st

from baton.credit import CreditError
from baton.credit.estimators.group import (
    Ema,
    agent_group,
    aligned,
    common_count,
    difference,
    role_ema,
    role_group,
)
from baton.credit.estimators.mixing import MonotoneMix, qmix, slopes, vdn
from baton.errors import UsageError
from baton.trace import Call, Event, Ints, Reward, Trace
from baton.trace.vocabulary import CreditUnit


def own(unit: CreditUnit, target: str, value: float) -> Reward:
    return Reward(family="individual", unit=unit, target=target, value=value)


# -- agents ---------------------------------------------------------------------------------------


def test_agents_are_compared_with_themselves_in_other_rollouts() -> None:
    group = [
        make_trace("a", 0.0, workers=1),
        make_trace("b", 1.0, workers=2),
        make_trace("c", 1.0, workers=2),
    ]
    first, second, _ = map(by_target, agent_group(group, eps=0.0))
    scale = np.std([0, 1, 1], ddof=1)
    assert first["w1"] == pytest.approx((0 - 2 / 3) / scale)
    assert second["w1"] == pytest.approx((1 - 2 / 3) / scale)
    assert second["w2"] == 0.0  # both rollouts with w2 went alike
    assert set(first) == {"lead", "w1"}


@given(st.floats(-10, 10))
def test_an_agent_in_one_rollout_alone_gets_zero(total: float) -> None:
    """Dr. MAS's code gives it the raw reward."""
    group = [make_trace("a", total, workers=2), make_trace("b", 1.0, workers=1)]
    (credit,) = [c for c in agent_group(group)[0] if c.target == "w2"]
    assert credit.value == 0.0
    assert credit.stderr is None
    assert "nothing to compare" in credit.assumes[-1]
    assert {c.value for c in agent_group([group[0]])[0]} == {0.0}


def with_calls(trace: Trace, agent: str, count: int) -> Trace:
    """The same rollout with an agent that calls many more times."""
    last = trace.events[-1].seq
    calls = [Call(id=f"{agent}:x{n}", agent=agent, completion_ids=Ints((1,))) for n in range(count)]
    events = [
        Event(id=f"{agent}#x{n}", t=99.0, type="message", agent=agent, seq=last + n + 1, call=f"{agent}:x{n}")
        for n in range(count)
    ]
    return Trace(
        header=trace.header,
        events=(*trace.events, *events),
        calls=(*trace.calls, *calls),
        rewards=trace.rewards,
    )


def test_rollouts_are_weighed_and_not_calls() -> None:
    """Ten more calls in one rollout change nobody's baseline."""
    group = group_of([0.0, 1.0, 0.5])
    busy = [with_calls(group[0], "w1", 10), *group[1:]]
    assert [by_target(c) for c in agent_group(busy)] == [by_target(c) for c in agent_group(group)]


def test_own_rewards_count_as_asked() -> None:
    group = [
        make_trace("a", 1.0, more_rewards=[own("agent", "w1", 0.5)]),
        make_trace("b", 0.0, more_rewards=[own("role", "searcher", 0.25)]),
    ]
    both = [by_target(c) for c in agent_group(group, counts="both", eps=0.0)]
    assert both[0]["w1"] == pytest.approx(math.sqrt(0.5))
    alone = [by_target(c) for c in agent_group(group, counts="own")]
    assert set(alone[0]) == {"w1"}
    assert set(alone[1]) == {"w1", "w2"}
    with pytest.raises(CreditError, match="no rewards on agents or roles"):
        agent_group(group_of([0.0, 1.0]), counts="own")
    with pytest.raises(UsageError, match="Did you mean 'own'"):
        agent_group(group, counts="owns")  # type: ignore[arg-type]


def test_own_rewards_need_no_team_return_and_verdicts_are_none() -> None:
    verdict = Reward(family="debate", unit="agent", target="w2", value=1.0, name="verdict")
    hybrid = Reward(family="hybrid", unit="agent", target="w1", value=0.5)
    group = [
        make_trace("a", None, more_rewards=[own("agent", "w1", 9.0), hybrid, verdict]),
        make_trace("b", None, more_rewards=[own("agent", "w1", 0.0)]),
    ]
    found = [by_target(c) for c in agent_group(group, counts="own", eps=0.0)]
    assert found == [{"w1": pytest.approx(math.sqrt(0.5))}, {"w1": pytest.approx(-math.sqrt(0.5))}]
    assert agent_group(group, counts="own", eps=1.0)[0][0].value == pytest.approx(
        0.25 / (1 + math.sqrt(0.125))
    )


def test_difference_is_the_return_less_the_counterfactual() -> None:
    found = difference(
        [make_trace(total=1.0)], without=lambda _, agent: {"lead": 0.0, "w1": 0.75}.get(agent, 1.0)
    )
    assert by_target(found[0]) == {"lead": 1.0, "w1": 0.25, "w2": 0.0}


# -- mixing ---------------------------------------------------------------------------------------


def test_vdn_gives_everyone_the_whole_error() -> None:
    found = by_target(
        vdn([make_trace(total=1.0)], q=lambda _, agent: {"lead": 0.2, "w1": 0.3}.get(agent, 0.0))[0]
    )
    assert found == pytest.approx({"lead": 0.5, "w1": 0.5, "w2": 0.5})


@given(st.lists(st.floats(-2, 2), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_qmix_weights_make_it_monotone(values: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    mix = MonotoneMix(rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=4), 0.1)
    found = slopes(mix, values)
    assert min(found) >= 0.0
    hidden = mix.w1_HN @ np.asarray(values) + mix.b1_H
    exact = (mix.w2_H * np.where(hidden > 0, 1.0, np.exp(np.minimum(hidden, 0)))) @ mix.w1_HN
    np.testing.assert_allclose(found, exact, atol=1e-3)


def test_qmix_credit_goes_through_the_slope() -> None:
    mix = MonotoneMix([[2.0, 1.0, 0.0]], [10.0], [1.0], -10.0)
    found = by_target(qmix([make_trace(total=1.0)], q=lambda *_: 0.1, mix=lambda _: mix)[0])
    assert found == pytest.approx({"lead": 1.4, "w1": 0.7, "w2": 0.0})


def test_a_mixing_that_is_not_monotone_is_refused() -> None:
    with pytest.raises(CreditError, match="not monotone: its slope in the value of w1"):
        qmix([make_trace()], q=lambda *_: 0.1, mix=lambda _: lambda q: q[0] - q[1] + q[2])


# -- roles ----------------------------------------------------------------------------------------


def test_alignment_repeats_and_drops() -> None:
    assert aligned(3, 8) == [3, 3, 2]
    assert aligned(5, 2) == [1, 1, 0, 0, 0]
    assert aligned(4, 4) == [1, 1, 1, 1]
    assert common_count([1] * 99 + [50]) == 1
    assert common_count([1] * 98 + [50] * 2) == 50
    assert common_count([0, 3, 0]) == 3
    assert common_count([]) == 0


@given(returns_lists, st.data())
def test_a_roles_credit_sums_to_zero_over_the_aligned_batch(totals: list[float], data: st.DataObject) -> None:
    d = data.draw(st.none() | st.integers(1, 4))
    group = [
        make_trace(f"t{place}", total, workers=data.draw(st.integers(1, 4)))
        for place, total in enumerate(totals)
    ]
    found = [c for mine in role_group(group, d=d) for c in mine if c.target.startswith("w")]
    assert math.fsum(c.value for c in found) == pytest.approx(0, abs=1e-6)


def test_role_groups_pool_sub_trajectories() -> None:
    group = [
        make_trace("a", 0.0, workers=1, more_rewards=[own("agent", "w1", 1.0)]),
        make_trace("b", 0.0, workers=2, more_rewards=[own("agent", "w1", 0.0), own("agent", "w2", 2.0)]),
    ]
    found = [by_target(c) for c in role_group(group, counts="own", eps=0.0)]
    batch = [1.0, 1.0, 0.0, 2.0]  # the first rollout's worker stands there twice
    scale = np.std(batch, ddof=1)
    assert found[0] == pytest.approx({"w1": 0.0})
    assert found[1] == pytest.approx({"w1": -1 / scale, "w2": 1 / scale})
    dropped = role_group(group, counts="own", d=1)
    assert [set(by_target(c)) for c in dropped] == [{"w1"}, {"w1"}]
    by_role = role_group(group, unit="role", counts="own", eps=0.0)
    assert [by_target(c) for c in by_role] == [{"searcher": 0.0}, {"searcher": 0.0}]
    assert {c.stderr for mine in by_role for c in mine} == {None}  # both means are 1, and that is chance
    with pytest.raises(UsageError, match="d is 0"):
        role_group(group, d=0)


def test_ema_uses_the_baseline_from_before_the_update() -> None:
    kept = Ema()
    found = [by_target(c)["searcher"] for c in role_ema(group_of([1.0, 1.0]), ema=kept)]
    assert found == pytest.approx([1.0, 1.0 - 0.05])
    assert kept.values["searcher"] == pytest.approx(0.95 * 0.05 + 0.05)
    again = role_ema(group_of([0.0]), ema=kept)
    assert by_target(again[0])["searcher"] == pytest.approx(-0.0975)
