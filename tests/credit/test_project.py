from __future__ import annotations

import math

import pytest
from credit_teams import make_trace
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import valid_traces

from baton.credit import CreditError
from baton.credit.estimator import make_credit
from baton.credit.project import project, tokens_of
from baton.errors import TraceError, UsageError
from baton.trace import Credit, Trace
from baton.trace.acts import acts
from baton.trace.vocabulary import CreditUnit


def credit(unit: CreditUnit, target: str, value: float = 1.0) -> Credit:
    return make_credit("test", unit, target, value)


def lit(trace: Trace, *credits: Credit, decision_only: bool = False) -> dict[str, list[int]]:
    """Tokens with an advantage, by call."""
    found = project(trace, credits, decision_only=decision_only)
    return {
        call: [i for i, value in enumerate(values) if value] for call, values in found.items() if any(values)
    }


def test_team_role_agent_and_turn_reach_whole_completions() -> None:
    trace = make_trace(workers=1)
    everything = {"lead:1": [0, 1, 2], **{call: list(range(6)) for call in ("w1:1", "w1:2", "lead:2")}}
    assert lit(trace, credit("team", "a")) == everything
    assert lit(trace, credit("role", "searcher")) == {"w1:1": list(range(6)), "w1:2": list(range(6))}
    assert lit(trace, credit("agent", "lead")) == {"lead:1": [0, 1, 2], "lead:2": list(range(6))}
    assert lit(trace, credit("turn", "w1:2")) == {"w1:2": list(range(6))}
    assert lit(trace, credit("token", "w1:2:3")) == {"w1:2": [3]}


def test_a_decision_is_separable_from_the_reasoning_around_it() -> None:
    trace = make_trace(workers=2)
    first, second = credit("orchestrator", "lead#1"), credit("orchestrator", "lead#2")
    assert lit(trace, first) == {"lead:1": [0, 1, 2]}  # its span is (1, 3), token 0 led up to it
    assert lit(trace, second) == {"lead:1": [3, 4]}
    assert lit(trace, first, decision_only=True) == {"lead:1": [1, 2]}
    aggregate, stop = trace.events[-2:]
    assert lit(trace, credit("orchestrator", aggregate.id)) == {"lead:2": [0, 1, 2]}
    assert lit(trace, credit("orchestrator", stop.id)) == {"lead:2": [3, 4, 5]}
    assert lit(trace, credit("message", "w1#5")) == {"w1:2": list(range(6))}
    assert lit(trace, credit("message", "w1#5>lead"), decision_only=True) == {"w1:2": [2, 3, 4, 5]}
    assert lit(trace, credit("tool_call", "w1#3")) == {"w1:1": list(range(6))}


def test_spread() -> None:
    trace = make_trace(workers=1)
    assert project(trace, [credit("turn", "w1:1", 3.0)])["w1:1"].tolist() == [3.0] * 6
    assert project(trace, [credit("turn", "w1:1", 3.0)], spread="sum")["w1:1"].tolist() == [0.5] * 6
    with pytest.raises(UsageError, match="spread is 'avg'"):
        project(trace, [], spread="avg")  # type: ignore[arg-type]


@given(st.data())
def test_sums_are_conserved_on_every_unit(data: st.DataObject) -> None:
    trace = make_trace(workers=data.draw(st.integers(1, 3)))
    unit: CreditUnit = data.draw(
        st.sampled_from(["team", "role", "agent", "turn", "orchestrator", "message", "tool_call", "token"])
    )
    targets = {
        "team": ["a"],
        "role": ["orchestrator", "searcher"],
        "agent": ["lead", "w1"],
        "turn": [call.id for call in trace.calls],
        "token": [f"{call.id}:{k}" for call in trace.calls for k in range(len(call.completion_ids or ()))],
    }.get(unit) or [event.id for _, event in acts(trace, unit)]
    credits = [credit(unit, target, data.draw(st.floats(-10, 10))) for target in targets]
    for decision_only in (False, True):
        found = project(trace, credits, spread="sum", decision_only=decision_only)
        total = math.fsum(value for values in found.values() for value in values)
        assert total == pytest.approx(math.fsum(c.value for c in credits), abs=1e-9)


def test_events_of_a_call_share_out_all_its_tokens() -> None:
    trace = make_trace(workers=3)
    said = [e.id for e in trace.events if e.call == "lead:1"]
    reached = [tokens_of(trace, credit("orchestrator", id_))["lead:1"] for id_ in said]
    assert sorted(place for places in reached for place in places) == list(range(7))


def test_what_nobody_chose_is_not_trained() -> None:
    trace = make_trace(workers=1)
    stop = trace.events[-1]
    forced = structs.replace(stop, status="forced")
    trace = structs.replace(trace, events=(*trace.events[:-1], forced))
    assert lit(trace, credit("orchestrator", stop.id)) == {}
    assert tokens_of(trace, credit("orchestrator", stop.id)) == {}
    assert lit(trace, credit("turn", "lead:2")) == {"lead:2": [0, 1, 2]}
    assert lit(trace, credit("team", "a"))["lead:2"] == [0, 1, 2]
    assert lit(trace, credit("token", "lead:2:4")) == {}
    replaced = structs.replace(stop, extra={"intervention": "replace"})
    trace = structs.replace(trace, events=(*trace.events[:-1], replaced))
    assert lit(trace, credit("agent", "lead"))["lead:2"] == [0, 1, 2]


@pytest.mark.parametrize("status", ["invalid", "cancelled", "failed"])
def test_what_the_policy_said_in_vain_is_trained(status: str) -> None:
    trace = make_trace(workers=1)
    stop = structs.replace(trace.events[-1], status=status)
    trace = structs.replace(trace, events=(*trace.events[:-1], stop))
    assert lit(trace, credit("orchestrator", stop.id)) == {"lead:2": [3, 4, 5]}


def test_a_span_that_was_not_recorded() -> None:
    trace = make_trace(workers=1)
    blurred = structs.replace(trace, events=tuple(structs.replace(e, span=None) for e in trace.events))
    assert lit(blurred, credit("message", "w1#4")) == {"w1:2": list(range(6))}
    with pytest.raises(CreditError, match="Record spans"):
        project(blurred, [credit("message", "w1#4")], decision_only=True)


def test_tokens_shared_with_what_nobody_chose_are_not_trained() -> None:
    trace = make_trace(workers=1)
    aggregate, stop = (structs.replace(e, span=None) for e in trace.events[-2:])
    trace = structs.replace(
        trace, events=(*trace.events[:-2], aggregate, structs.replace(stop, status="forced"))
    )
    assert tokens_of(trace, credit("orchestrator", aggregate.id)) == {}


def test_targets_that_are_not_there() -> None:
    trace = make_trace(workers=1)
    for unit, target, hint in (
        ("agent", "leed", "Did you mean 'lead'"),
        ("role", "sercher", "Did you mean 'searcher'"),
        ("turn", "lead:3", "Did you mean"),
        ("token", "lead:2:6", "CALL:INDEX"),
        ("team", "b", "not for trace a"),
    ):
        with pytest.raises(CreditError, match=hint):
            project(trace, [credit(unit, target)])  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="no event 'w1#99'"):
        project(trace, [credit("message", "w1#99")])
    with pytest.raises(CreditError, match="no completion tokens"):
        project(structs.replace(trace, calls=()), [])


@given(valid_traces())
def test_any_valid_trace_projects(trace: Trace) -> None:
    if not any(call.completion_ids is not None for call in trace.calls):
        return
    made = make_credit("test", "team", trace.trace_id, 2.0)
    reached = sum(map(len, tokens_of(trace, made).values()))
    found = project(trace, [made], spread="sum")
    total = math.fsum(value for values in found.values() for value in values)
    assert total == pytest.approx(2.0 if reached else 0.0)
    assert {call: len(values) for call, values in found.items()} == {
        call.id: len(call.completion_ids) for call in trace.calls if call.completion_ids is not None
    }
