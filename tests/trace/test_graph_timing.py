"""How many agents are busy over time, and the critical path."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from baton.trace.graph.timing import Concurrency, span_seconds
from baton.trace.records import Edge, Event
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


def made(times: list[tuple[float, float]], edges: set[tuple[int, int]]) -> Trace:
    """Events that begin and take so long, each pair of rows an edge."""
    events = tuple(
        Event(id=f"e{i}", t=t, type="message", agent="a", seq=i, duration_s=duration)
        for i, (t, duration) in enumerate(times)
    )
    waits = tuple(Edge(f"e{u}", f"e{v}", "message") for u, v in sorted(edges))
    return Trace(header=Header(trace_id="t", task_id="k"), events=events, edges=waits)


def test_what_ends_before_what_it_waited_for_makes_no_path_longer() -> None:
    # The second goes on while the first ends; the third waited for the second alone.
    trace = made([(0.0, 10.0), (2.0, 1.0), (3.0, 9.0)], {(0, 1), (1, 2)})
    assert span_seconds(trace) == 12.0


@given(
    st.lists(st.tuples(st.integers(0, 9).map(float), st.integers(0, 9).map(float)), min_size=2, max_size=8),
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))),
)
def test_no_path_is_longer_than_the_run(
    times: list[tuple[float, float]], pairs: set[tuple[int, int]]
) -> None:
    times = sorted(times)
    found = span_seconds(made(times, {(u, v) for u, v in pairs if u < v < len(times)}))
    if found is not None and len({t for t, _ in times}) > 1:
        assert found <= max(t + took for t, took in times) - times[0][0]
        assert found >= max(took for _, took in times)
