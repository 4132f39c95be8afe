from __future__ import annotations

import math

import pytest
from credit_teams import group_of, make_trace
from hypothesis import given
from hypothesis import strategies as st
from strategies import valid_traces

from baton.credit import CreditError
from baton.credit.core.covering import check_disjoint
from baton.credit.core.tree import tree_value
from baton.credit.estimator import Prefix, make_credit
from baton.credit.estimators.group import mean_only
from baton.credit.estimators.partition import partition
from baton.credit.estimators.telescope import telescope
from baton.credit.project import project
from baton.trace import Trace
from baton.trace.acts import unit_of


def noisy(prefix: Prefix) -> float:
    return math.sin(3.1 * prefix.num_events) * 7


@given(valid_traces(), st.floats(-1e6, 1e6))
def test_channels_sum_to_the_return_less_its_baseline(trace: Trace, total: float) -> None:
    found = partition(trace, value=noisy, reward=lambda _: total)
    assert math.fsum(found.channels.values()) == pytest.approx(total - noisy(Prefix(trace, 0)), abs=1e-6)
    assert found.residual == pytest.approx(0, abs=1e-6)
    assert len({c.target for c in found.credits}) == len(found.credits)
    assert len(found.credits) == sum(unit_of(event) is not None for event in trace.events)


def test_each_event_gets_how_far_it_moved_the_value() -> None:
    trace = make_trace(total=1.0, workers=1)
    values = [0.5, 0.6, 0.4, 0.7, 0.9, 0.8, 0.95]  # before each of the six events, and at the end
    found = partition(trace, value=lambda prefix: values[prefix.num_events])
    shares = {c.target: (c.unit, c.value) for c in found.credits}
    assert shares["lead#1"] == ("orchestrator", pytest.approx(0.1))
    assert shares["w1#2"] == ("tool_call", pytest.approx(-0.2))
    assert shares["w1#4"] == ("message", pytest.approx(0.2))
    assert "w1#3" not in shares  # a tool's result
    assert found.luck == pytest.approx({"environment": 0.3, "outcome": 0.05, "estimation": 0.0})
    assert found.baseline == 0.5
    assert found.channels["telescope/message"] == pytest.approx(0.2)


def test_luck_stays_out_of_the_gradient() -> None:
    """The environment moves the value; no token hears of it."""
    trace = make_trace(total=1.0, workers=1)
    found = partition(trace, value=lambda prefix: 1.0 if prefix.num_events >= 3 else 0.0)
    assert found.luck["environment"] == 1.0
    advantages = project(trace, found.credits)
    assert all(value == 0.0 for values in advantages.values() for value in values)


@given(st.floats(-5, 5), st.floats(-5, 5))
def test_a_finer_estimate_stands_in_place_of_the_telescoped_one(message: float, stop: float) -> None:
    trace = make_trace(total=1.0, workers=1)
    layers = (
        [make_credit("replay", "message", "w1#4", message)],
        [make_credit("stop-value", "orchestrator", trace.events[-1].id, stop)],
    )
    found = partition(trace, *layers, value=noisy)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert [c.estimator for c in found.credits if c.target == "w1#4"] == ["replay"]
    assert found.channels["replay/message"] == message
    project(trace, found.credits)  # disjoint, so it may go to tokens


def test_a_layer_on_a_whole_agent_covers_its_events() -> None:
    trace = make_trace(total=1.0, workers=2)
    found = partition(trace, [make_credit("shapley", "agent", "w1", 0.3)], value=noisy)
    assert not any(c.target.startswith("w1#") for c in found.credits)
    assert any(c.target.startswith("w2#") for c in found.credits)
    assert found.residual == pytest.approx(0, abs=1e-9)


def test_counting_twice_is_an_error_that_names_both() -> None:
    trace = make_trace(total=1.0, workers=1)
    team = [make_credit("group", "team", "a", 1.0)]
    message = [make_credit("replay", "message", "w1#4", 0.5)]
    for attempt in (
        lambda: project(trace, [*team, *message]),
        lambda: partition(trace, team, [make_credit("replay", "team", "a", 1.0)], value=noisy),
        lambda: check_disjoint(trace, [*message, *team]),
    ):
        with pytest.raises(CreditError, match=r"credited twice.*(group.*replay|replay.*group)"):
            attempt()
    for one, other in (
        (("x", "turn", "w1:2"), ("x", "message", "w1#4")),
        (("x", "agent", "w1"), ("y", "role", "searcher")),
        (("x", "agent", "w1"), ("x", "turn", "w1:1")),
        (("x", "token", "w1:2:3"), ("y", "message", "w1#4")),
        (("x", "message", "w1#4"), ("x", "message", "w1#4")),
        (("x", "message", "w1#4"), ("x", "message", "w1#4>lead")),
        (("x", "message", "w1#4>lead"), ("x", "message", "w1#4")),
    ):
        with pytest.raises(CreditError, match="credited twice"):
            check_disjoint(trace, [make_credit(*one, 1.0), make_credit(*other, 1.0)])  # type: ignore[arg-type]


def test_parts_of_one_estimate_may_share_an_event() -> None:
    trace = make_trace(total=1.0, workers=1)
    check_disjoint(trace, [make_credit("x", "token", f"w1:2:{k}", 1.0) for k in range(6)])
    check_disjoint(trace, [make_credit("x", "message", f"w1#4>{a}", 1.0) for a in ("lead", "w2")])
    check_disjoint(trace, [make_credit("x", "agent", a, 1.0) for a in ("lead", "w1")])


def test_credit_for_what_nobody_chose_is_refused() -> None:
    trace = make_trace(total=1.0, workers=1, stop_status="forced")
    with pytest.raises(CreditError, match="covers no event"):
        partition(trace, [make_credit("x", "turn", "nobody:1", 1.0)], value=noisy)


def test_without_a_critic_the_group_is_one() -> None:
    group = [
        make_trace("a", 1.0, workers=1, said=["x"]),
        make_trace("b", 0.0, workers=1, said=["y"]),
    ]
    value = tree_value(group)
    assert [value(Prefix(group[0], n)) for n in range(7)] == [0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0]
    found = telescope(group, unit="message", compare="prefix")
    assert [(c.target, c.value) for mine in found for c in mine] == [("w1#4", 0.5), ("w1#4", -0.5)]
    assert partition(group[0], value=value).luck == {"environment": 0.0, "outcome": 0.0, "estimation": 0.0}
    with pytest.raises(CreditError, match="not of the group"):
        value(Prefix(make_trace("c"), 0))


def test_team_credit_and_partition_agree_on_the_total() -> None:
    group = group_of([0.0, 1.0, 0.5])
    for trace, (credit,) in zip(group, mean_only(group), strict=True):
        found = partition(trace, value=tree_value(group))
        assert math.fsum(found.channels.values()) == pytest.approx(credit.value)
