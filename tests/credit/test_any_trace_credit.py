"""Every estimator on any valid traces: finite credits on things that are there, or an error that says why not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import valid_traces
from test_saved_credit import GIVEN, OURS

from baton.credit import ESTIMATORS
from baton.credit.core.covering import check_disjoint
from baton.credit.project import project
from baton.errors import TraceError
from baton.trace import Credit, Reward, Trace
from baton.trace.acts import agents

GIVEN_HERE = {**GIVEN, "qmix": {"q": lambda *_: 0.5, "mix": lambda _: lambda values: 2 * math.fsum(values)}}


def is_there(trace: Trace, credit: Credit) -> bool:
    known = {
        "team": {trace.trace_id},
        "role": {role or "" for role in agents(trace).values()},
        "agent": set(agents(trace)),
        "turn": set(trace.call_by_id),
    }.get(credit.unit)
    if credit.unit == "token":
        return credit.target.rpartition(":")[0] in trace.call_by_id
    return credit.target in (trace.position if known is None else known)


@pytest.mark.parametrize("name", sorted(OURS | {"spawn-doubly-robust"}))
@settings(max_examples=25)
@given(st.lists(st.tuples(valid_traces(), st.floats(-1, 1)), min_size=1, max_size=3))
def test_any_valid_traces(name: str, drawn: list[tuple[Trace, float]]) -> None:
    group = [
        trace.with_records(rewards=[Reward(family="shared", unit="team", target=trace.trace_id, value=total)])
        for trace, total in drawn
    ]
    try:
        credits = ESTIMATORS[name](group, **GIVEN_HERE.get(name, {}))
    except TraceError:
        return
    assert len(credits) == len(group)
    for trace, mine in zip(group, credits, strict=True):
        check_disjoint(trace, mine)
        for credit in mine:
            assert math.isfinite(credit.value)
            assert credit.stderr is None or credit.stderr >= 0
            assert credit.estimator == name
            assert credit.unit in ESTIMATORS[name].units
            assert is_there(trace, credit)
        if any(call.completion_ids for call in trace.calls):
            project(trace, mine)
