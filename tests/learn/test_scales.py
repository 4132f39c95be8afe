"""Which tokens are learned: all at once gives what each decision alone gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from baton.credit.project import tokens_of
from baton.games.game import CHOICES
from baton.learn.crediting import learned_weights
from baton.trace.records import Call, Credit, Event, Ints
from baton.trace.trace import Header, Trace

LEARNED = {"wait": "stop", "continue": "stop"} | {name: name for name in CHOICES}
SIZE = 6


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Calls of six tokens, each with some events on some of them, chosen or not."""
    calls = tuple(
        Call(id=f"a:{n}", agent="a", completion_ids=Ints(range(SIZE))) for n in range(draw(st.integers(1, 4)))
    )
    events: list[Event] = []
    for call in calls:
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(0, SIZE - 1))
            span = draw(st.sampled_from([None, (start, draw(st.integers(start + 1, SIZE)))]))
            events.append(
                Event(
                    id=f"a#{len(events)}",
                    type="orchestrator_decision",
                    agent="a",
                    t=float(len(events)),
                    seq=len(events),
                    decision=draw(st.sampled_from(["none", *LEARNED])),
                    status=draw(st.sampled_from(["ok", "invalid", "forced"])),
                    call=draw(st.sampled_from([call.id, None])),
                    span=span,
                )
            )
    return Trace(header=Header(trace_id="t", task_id="t"), events=tuple(events), calls=calls)


@given(traces(), st.sets(st.sampled_from(CHOICES)), st.sampled_from([1.0, 0.25]))
def test_as_each_decision_alone(trace: Trace, learned: set[str], level: float) -> None:
    expected = {call.id: np.full(SIZE, level) for call in trace.calls}
    for event in trace.events:
        if event.call is not None and LEARNED.get(event.decision, "") not in ("", *learned):
            there = Credit(unit="orchestrator", target=event.id, value=0.0, estimator="")
            for call, places in tokens_of(trace, there).items():
                expected[call][places] = 0.0
    found = learned_weights(trace, dict.fromkeys(expected, SIZE), learned, level=level)
    assert {call: values.numpy().tolist() for call, values in found.items()} == {
        call: values.tolist() for call, values in expected.items()
    }
