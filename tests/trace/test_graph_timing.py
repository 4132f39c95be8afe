"""How many agents are busy over time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from baton.trace.graph.timing import Concurrency
from baton.trace.records import Event
from baton.trace.trace import Header, Trace

Rows = list[tuple[str, float, float | None]]


def busy(rows: Rows, type_: str = "message") -> Concurrency:
    events = tuple(
        Event(id=f"e{i}", t=t, type=type_, agent=agent, seq=i, duration_s=duration)  # type: ignore[arg-type]
        for i, (agent, t, duration) in enumerate(rows)
    )
    return Concurrency.of(Trace(header=Header(trace_id="t", task_id="k"), events=events))


def test_steps_peak_and_mean() -> None:
    found = busy([("a", 0.0, 4.0), ("b", 1.0, 2.0), ("c", 2.0, 1.0), ("a", 6.0, 1.0)])
    assert found.times.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert found.counts.tolist() == [1, 2, 3, 1, 0, 1, 0]
    assert (found.peak, found.busy_s, found.mean) == (3, 8.0, 8.0 / 7.0)


def test_an_agent_counts_once_however_much_it_does() -> None:
    found = busy([("a", 0.0, 10.0), ("a", 1.0, 2.0), ("a", 9.0, 2.0), ("a", 11.0, 1.0)])
    assert found.times.tolist() == [0, 12]
    assert found.counts.tolist() == [1, 0]
    assert found.mean == 1.0


def test_handing_over_at_one_instant_is_no_overlap() -> None:
    found = busy([("a", 0.0, 1.0), ("b", 1.0, 1.0)])
    assert found.times.tolist() == [0, 2]
    assert found.peak == 1


def test_nothing_timed_is_not_measured() -> None:
    for rows in ([], [("a", 0.0, None)], [("a", 1.0, 0.0)]):
        found = busy(rows)
        assert (found.peak, found.busy_s, found.mean) == (None, None, None)
        assert found.times.tolist() == []


def test_tools_are_not_busy_agents() -> None:
    assert busy([("search", 0.0, 1.0)], "tool_result").peak is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 12).map(float),
            st.none() | st.integers(0, 6).map(float),
        ),
        max_size=25,
    )
)
def test_counts_are_those_of_asking_every_agent_at_every_instant(rows: Rows) -> None:
    found = busy(rows)
    for instant in np.arange(-0.5, 20, 0.5):
        expected = {agent for agent, t, duration in rows if t <= instant < t + (duration or 0.0)}
        step = int(np.searchsorted(found.times, instant, side="right")) - 1
        assert (int(found.counts[step]) if step >= 0 else 0) == len(expected)
    assert (np.diff(found.times) > 0).all()
    assert (np.diff(found.counts) != 0).all()
    assert not len(found.counts) or found.counts[-1] == 0
