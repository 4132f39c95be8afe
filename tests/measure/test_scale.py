from __future__ import annotations

import pytest
from hypothesis import given
from strategies import arbitrary_traces, valid_traces

from baton.measure.metrics.scale import scale
from baton.trace.recorder import Recorder
from baton.trace.records import Edge, Event
from baton.trace.trace import Header, Trace

HEADER = Header(trace_id="t", task_id="k")


def event(seq: int, agent: str, type_: str = "message", **fields: object) -> Event:
    return Event(**{"id": f"e{seq}", "t": 0.0, "type": type_, "agent": agent, "seq": seq, **fields})


def test_every_figure_of_a_small_team() -> None:
    seconds = [0.0]
    with Recorder(None, task_id="k", topology="swarm", trace_id="t", clock=lambda: seconds[0]) as team:
        lead = team.agent("lead", role="orchestrator")
        seconds[0] += 1
        lead.call(completion_ids=[1, 2, 3], duration_s=1.0)
        workers = [lead.spawn(f"w{n}", role="searcher") for n in range(2)]
        tools = [worker.tool("look", "where") for worker in workers]
        seconds[0] += 2
        for worker, tool in zip(workers, tools, strict=True):
            tool.result("here", status="failed")
            worker.send(lead, "here")
            worker.returns("here")
        lead.aggregate(workers, "here")
        lead.stop("here")
        team.reward("shared", 1.0)
        team.reward("hybrid", 1.0, name="weighted")
        team.reward("shared", 0.0)
        team.credit("message", "e5", 1.0, estimator="x")
        team.credit("team", None, 1.0, estimator="x")
    size = scale(team.trace())
    assert size.events == 14
    assert size.events_by_type == {
        "spawn": 2, "tool_call": 2, "tool_result": 2, "message": 2, "return": 2, "despawn": 2,
        "aggregate": 1, "orchestrator_decision": 1,
    }  # fmt: skip
    assert (size.calls, size.messages, size.tool_calls) == (1, 2, 2)
    assert size.decisions == {"spawn": 2, "communicate": 2, "aggregate": 1, "stop": 1}
    assert size.statuses == {"ok": 12, "failed": 2}
    assert (size.agents, size.spawned, size.max_depth) == (3, 2, 1)
    assert size.roles == {"searcher": 2, "orchestrator": 1}
    assert (size.max_concurrency, size.mean_concurrency) == (2, 5 / 3)
    assert (size.tokens, size.seconds) == (3, 3.0)
    assert (size.work_s, size.span_s, size.parallelism) == (5.0, 3.0, 5 / 3)
    assert size.reward_channels == ("shared", "weighted")
    assert size.credit_units == ("team", "message")
    assert size.finest_credit_unit == "message"
    assert size.inferred_share == 0.0
    assert (size.payloads, size.payload_bytes) == (2, 9)


def test_what_was_not_measured_is_not_zero() -> None:
    size = scale(Trace(header=HEADER, events=(event(1, "a"), event(2, "b", inferred=True))))
    assert size.tokens is None
    assert (size.work_s, size.span_s, size.parallelism, size.critical_path_events) == (None,) * 4
    assert (size.max_concurrency, size.mean_concurrency, size.payload_bytes) == (None,) * 3
    assert size.finest_credit_unit is None
    assert size.inferred_share == 0.5
    empty = scale(Trace(header=HEADER))
    assert (empty.events, empty.seconds, empty.inferred_share) == (0, None, None)


def test_an_instant_is_no_division_by_zero() -> None:
    size = scale(Trace(header=HEADER, events=(event(1, "a", duration_s=0.0),)))
    assert (size.work_s, size.span_s, size.parallelism) == (0.0, 0.0, None)


def test_costs_come_before_sums() -> None:
    events = (event(1, "a", tokens=3, t=5.0, duration_s=1.0), event(2, "a", tokens=4))
    assert scale(Trace(header=HEADER, events=events)).tokens == 7
    assert scale(Trace(header=HEADER, events=events)).seconds == 6.0
    stated = scale(Trace(header=HEADER, events=events, costs={"tokens": 9.0, "wall_clock_s": 8.0}))
    assert (stated.tokens, stated.seconds) == (9.0, 8.0)


def test_a_broken_graph_is_measured_as_far_as_it_goes() -> None:
    circle = (event(1, "a", "spawn", to="b"), event(2, "b", "spawn", to="a"))
    size = scale(Trace(header=HEADER, events=circle))
    assert (size.events, size.agents, size.max_depth) == (2, None, None)
    dangling = scale(
        Trace(header=HEADER, events=(event(1, "a", duration_s=1.0),), edges=(Edge("e1", "x", "causal"),))
    )
    assert (dangling.agents, dangling.work_s) == (1, None)


@given(arbitrary_traces())
def test_every_trace_can_be_measured(trace: Trace) -> None:
    size = scale(trace)
    assert sum(size.events_by_type.values()) == sum(size.statuses.values()) == len(trace.events)


def test_the_span_is_never_longer_than_it_took() -> None:
    """Three tools that ran at once, whose results follow each other."""
    results = tuple(event(n, "a", "tool_result", duration_s=2.0, t=0.001 * n) for n in range(3))
    after = (Edge(src="e0", dst="e1", type="temporal"), Edge(src="e1", dst="e2", type="temporal"))
    size = scale(Trace(header=HEADER, events=results, edges=after))
    assert size.span_s == pytest.approx(2.002)
    assert size.seconds == pytest.approx(2.002)
    assert size.work_s == 6.0


@given(valid_traces())
def test_bounds(trace: Trace) -> None:
    size = scale(trace)
    assert size.agents is not None
    assert size.spawned is not None
    assert 0 <= size.spawned < size.agents
    if size.work_s is not None and size.span_s is not None:
        assert 0 <= size.span_s <= size.work_s * (1 + 1e-12)
    if size.max_concurrency is not None:
        assert 0 < (size.mean_concurrency or 0) <= size.max_concurrency <= size.agents
