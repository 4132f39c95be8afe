from __future__ import annotations

import inspect

import numpy as np
import pytest
from credit_teams import group_of, make_trace

from baton.credit import ESTIMATORS, CreditError, find, team_return
from baton.credit.estimator import Prefix, estimator, make_credit, returns
from baton.errors import TraceError, UsageError
from baton.team.forks import Cost
from baton.trace import Reward, Trace
from baton.trace.vocabulary import CREDIT_UNITS


def test_return_is_the_sum_of_team_rewards() -> None:
    more = [
        Reward(family="orchestration", unit="team", target="a", value=0.25, name="parallel"),
        Reward(family="individual", unit="agent", target="w1", value=9.0),
    ]
    trace = make_trace(total=1.0, more_rewards=more)
    assert team_return(trace) == 1.25
    assert team_return(trace, channel="parallel") == 0.25
    with pytest.raises(TraceError, match="Did you mean 'parallel'"):
        team_return(trace, channel="paralel")


def test_a_hybrid_reward_is_not_added_to_its_parts() -> None:
    more = [Reward(family="hybrid", unit="team", target="a", value=0.7)]
    assert team_return(make_trace(total=1.0, more_rewards=more)) == 0.7


def test_no_reward_says_how_to_get_one() -> None:
    with pytest.raises(TraceError, match="baton reward"):
        team_return(make_trace(total=None))


@pytest.mark.parametrize("name", ["group", "mean", "leave-one-out", "rank", "critical-steps", "siblings"])
def test_a_group_of_one_is_an_error_that_names_the_task(name: str) -> None:
    with pytest.raises(TraceError, match="at least 2; there is 1 of task"):
        ESTIMATORS[name]([make_trace()])


def test_every_estimator_states_formula_source_and_evidence() -> None:
    covered = set()
    for found in ESTIMATORS.values():
        text = inspect.getdoc(found.function) or ""
        formula, at, source = text.partition("Source:")
        assert "=" in formula.partition("\n")[0] or "(R - sum" in formula or "(R - Q_tot)" in formula, (
            found.name
        )
        assert at, f"{found.name}: no 'Source:' in its docstring"
        assert found.source, found.name
        assert set(found.evidence.split("/")) <= set("PCAMI"), found.name
        for tag in found.evidence.split("/"):
            assert f"[{tag}]" in source, f"{found.name}: [{tag}] is listed and not in its docstring"
        assert set(found.units) <= set(CREDIT_UNITS), found.name
        if len(found.units) > 1 and "runtime" not in found.needs:
            unit = inspect.signature(found.function).parameters["unit"]
            assert unit.default == found.units[0]
        covered |= set(found.units)
    assert covered == set(CREDIT_UNITS)


def test_names_are_forgiving_and_wrong_ones_are_not() -> None:
    assert find("leave_one_out").name == "leave-one-out"
    with pytest.raises(UsageError, match="Did you mean 'leave-one-out'"):
        find("leave-one-ot")
    with pytest.raises(UsageError, match="Did you mean 'eps'"):
        ESTIMATORS["group"](group_of([0, 1]), ep=1.0)
    with pytest.raises(UsageError, match="has no setting 'x'"):
        ESTIMATORS["mean"](group_of([0, 1]), x=1.0)
    with pytest.raises(UsageError, match="gives credit to team, not to 'agent'"):
        ESTIMATORS["mean"](group_of([0, 1]), unit="agent")
    with pytest.raises(CreditError, match=r"gae needs value=\.\.\."):
        ESTIMATORS["gae"](group_of([0, 1]))


def test_a_name_is_listed_once() -> None:
    with pytest.raises(UsageError, match="already is"):
        estimator("group", "team", source="x", evidence="I")(lambda group: [])


def test_reward_can_be_any_function_of_the_trace() -> None:
    def length(trace: Trace) -> float:
        return float(len(trace.events))

    assert returns([make_trace(total=None)], length) == [len(make_trace().events)]
    assert ESTIMATORS["mean"](group_of([0, 1]), reward=length)[0][0].value == 0.0


def test_a_credit_must_be_finite_and_says_what_it_cost() -> None:
    with pytest.raises(CreditError, match="nan"):
        make_credit("x", "team", "a", float("nan"))
    made = make_credit("x", "team", "a", 1, cost=Cost(3, 2) + Cost(1, 1))
    assert (made.cost_tokens, made.cost_calls) == (4, 3)
    free = ESTIMATORS["mean"](group_of([0, 1]))[0][0]
    assert (free.cost_tokens, free.cost_calls) == (0, 0)
    assert free.assumes


def test_a_prefix_is_a_trace_of_its_own() -> None:
    trace = make_trace()
    assert Prefix(trace, 0).graph().events == ()
    assert Prefix(trace, 3).graph().events == trace.events[:3]


def test_numbers_of_numpy_are_numbers() -> None:
    assert find("return-to-go").bind(gamma=np.float64(0.9))["gamma"] == 0.9
    with pytest.raises(UsageError, match="expected 0 to 1"):
        find("return-to-go").bind(gamma=np.float64(7))
