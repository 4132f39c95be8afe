"""Taint: each rule by a trace that shows it, blast radius, the least cut against networkx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs
from planted import event, trace_of
from strategies import valid_traces

from baton.measure.measured import MeasuredTrace
from baton.measure.safety.blast import Blast, blast, min_vertex_cut
from baton.measure.safety.taint import Taint, taint
from baton.trace.provenance import Labels
from baton.trace.records import Event
from baton.trace.trace import Trace

WEB = {"tool": "web", "trusted": False}


def found(
    events: Sequence[Event], edges: Sequence[tuple[str, str, str]] = (), labels: Labels | None = None
) -> Taint:
    return taint(trace_of(events, edges), labels)


def test_sources() -> None:
    events = [
        event(1, "a", "tool_call", tool="web"),
        event(2, "a", "tool_result", **WEB),
        event(3, "b", "tool_result", tool="file", trusted=True),
        event(4, "c", "tool_result", tool="mail"),
        event(5, "d", trusted=False),
    ]
    assert found(events).sources == ("e2", "e5")
    assert found(events).num_unlabelled_results == 1
    assert found(events, labels=Labels(untrusted=frozenset({"mail"}))).sources == ("e2", "e4", "e5")


@pytest.mark.parametrize("kind", ["message", "return", "aggregate", "tool_dependency", "safety_flow"])
def test_data_travels_along_data_edges(kind: str) -> None:
    one = found([event(1, "a", "tool_result", **WEB), event(2, "b")], [("e1", "e2", kind)])
    assert one.data == one.tainted == ("e1", "e2")


def test_temporal_edges_carry_nothing_and_causal_ones_control() -> None:
    pair = [event(1, "a", "tool_result", **WEB), event(2, "b")]
    assert found(pair, [("e1", "e2", "temporal")]).tainted == ("e1",)
    causal = found(pair, [("e1", "e2", "causal")])
    assert (causal.data, causal.control) == (("e1",), ("e2",))


def test_the_context_rule_lasts_until_a_clean_spawn() -> None:
    events = [
        event(1, "lead", "spawn", to="w"),
        event(2, "w", "tool_result", **WEB),
        event(3, "w"),
        event(4, "w", "return"),
        event(5, "lead", "spawn", to="w"),
        event(6, "w"),
    ]
    one = found(events)
    assert one.tainted == ("e2", "e3", "e4")
    assert one.agents == ("w",)
    tainted_lead = found(events, [("e4", "e5", "return")])
    assert "e6" in tainted_lead.control
    assert "e6" not in tainted_lead.data  # it was told by one who had read, it has not read


def test_spawn_and_delegate_pass_control_to_the_child() -> None:
    events = [
        event(1, "lead", "tool_result", **WEB),
        event(2, "lead", "spawn", to="new"),
        event(3, "lead", decision="delegate", to="old"),
        event(4, "new"),
        event(5, "old"),
        event(6, "stranger"),
        event(7, "lead", "spawn", to="nobody", status="failed"),
        event(8, "nobody"),
    ]
    one = found(events)
    assert one.control == ("e2", "e3", "e4", "e5", "e7")
    assert set(one.agents) == {"lead", "new", "old"}


def test_a_tools_result_is_read_by_who_called_it() -> None:
    events = [
        event(1, "a", "tool_call", tool="web"),
        event(2, "web", "tool_result", **WEB),
        event(3, "a"),
        event(4, "b"),
    ]
    one = found(events, [("e1", "e2", "tool_dependency")])
    assert one.tainted == ("e2", "e3")
    assert one.agents == ("a",)


def endorsing(by: str, type_: str, at: int) -> Taint:
    events = [
        event(1, "a", "tool_result", **WEB),
        event(2, "a", to="b"),
        event(at, by, type_, extra={"endorses": ["e1", "e2"]}),
        event(5, "b"),
        event(6, "a"),
    ]
    edges = [("e2", "e5", "message"), ("e2", f"e{at}", "message")]
    return found(sorted(events, key=lambda e: e.seq), edges if by == "check" else edges[:1])


def test_endorsement_by_a_person_cleans_what_is_read_later() -> None:
    one = endorsing("human", "human_intervention", 3)
    assert one.endorsed == ("e1", "e2")
    assert one.tainted == ("e1", "e2")  # what was said before it stays tainted
    late = endorsing("human", "human_intervention", 9)
    assert late.tainted == ("e1", "e2", "e5", "e6")


def test_who_has_read_taint_cannot_endorse() -> None:
    one = endorsing("check", "message", 3)
    assert one.refused_endorsements == ("e3",)
    assert "e5" in one.tainted
    assert endorsing("check", "safety_event", 3).refused_endorsements == ()
    assert endorsing("a", "message", 3).refused_endorsements == ("e3",)
    assert endorsing("other", "message", 3).endorsed == ("e1", "e2")


def test_violations() -> None:
    events = [
        event(1, "a", "tool_result", **WEB),
        event(2, "a", "tool_call", tool="pay"),
        event(3, "a", "tool_call", tool="look", extra={"consequential": True}),
        event(4, "b", "tool_call", tool="pay"),
        event(5, "c", "tool_call", tool="pay", trusted=False),
    ]
    one = found(events, labels=Labels(consequential=frozenset({"pay"})))
    assert one.consequential == ("e2", "e3", "e4", "e5")
    assert one.violations == ("e2", "e3")
    must = Labels(consequential=frozenset({"pay"}), trusted_arguments={"pay": ("to",)})
    assert found(events, labels=must).violations == ("e2", "e3", "e5")


def test_the_surveys_example() -> None:
    events = [
        event(5, "executor", "tool_call", tool="browser", trusted=True),
        event(6, "browser", "tool_result", tool="browser", trusted=False),
        event(7, "executor", "return", to="lead"),
        event(8, "lead", "aggregate"),
    ]
    edges = [("e5", "e6", "return"), ("e6", "e7", "causal"), ("e7", "e8", "aggregate")]
    assert found(events, edges).tainted == ("e6", "e7", "e8")


def radius(events: Sequence[Event], edges: Sequence[tuple[str, str, str]], labels: Labels) -> Blast:
    reading = MeasuredTrace(trace_of(events, edges))
    return blast(reading, taint(reading, labels))


PAY = Labels(consequential=frozenset({"pay"}))


def relay(*, both: bool) -> tuple[list[Event], list[tuple[str, str, str]]]:
    """Two readers tell a third, who pays; `both`: each by a message of its own, else through one relay."""
    events = [
        event(1, "a", "tool_result", tokens=10, **WEB),
        event(2, "b", "tool_result", tokens=10, **WEB),
        event(3, "a", tokens=10),
        event(4, "b", tokens=10),
        event(5, "relay", tokens=10),
        event(6, "payer", "tool_call", tool="pay", tokens=50),
        event(7, "idle", tokens=100),
    ]
    into = "e6" if both else "e5"
    edges = [("e3", into, "message"), ("e4", into, "message"), ("e5", "e6", "message")]
    return events, edges


def test_blast_radius() -> None:
    one = radius(*relay(both=False), PAY)
    assert one.tainted_agents == 4
    assert one.agent_share.value == pytest.approx(4 / 5)
    assert one.consequential_calls.value == 1
    assert one.cost_tokens.value == pytest.approx(0.5)
    assert one.cost_seconds.value is None
    assert one.longest_path == 4
    assert (one.min_cut.value, one.cut) == (1, ("e5",))
    two = radius(*relay(both=True), PAY)
    assert (two.min_cut.value, set(two.cut)) == (2, {"e3", "e4"})
    clean = radius([event(1, "a", "tool_call", tool="pay")], [], PAY)
    assert (clean.min_cut.value, clean.consequential_calls.value) == (0, 0)


def test_what_cannot_be_cut_and_what_cannot_be_said() -> None:
    alone = [event(1, "a", "tool_result", **WEB), event(2, "a"), event(3, "a", "tool_call", tool="pay")]
    # Guarding what the agent says in between does not clean what it remembers.
    assert "made the call itself" in (radius(alone, [("e2", "e3", "message")], PAY).min_cut.why_not or "")
    assert "says whether it is consequential" in (radius(alone, [], Labels()).min_cut.why_not or "")


@given(st.data())
@hypothesis_settings(max_examples=150)
def test_least_cut_is_networkxs(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 12))
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))
    ends = data.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=4, unique=True))
    half = len(ends) // 2
    sources, sinks = set(ends[:half]), set(ends[half:])
    cut = min_vertex_cut(n, edges, sources, sinks)
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(n))
    # One terminal each: networkx cuts between two vertices that are not neighbours.
    graph.add_edges_from(("S", v) for v in sources)
    graph.add_edges_from((v, "T") for v in sinks)
    heavy = graph.copy()
    reachable = {v for u in sources for v in nx.descendants(graph, u) | {u}}
    if cut is None:
        assert any(graph.has_edge(u, v) for u in sources for v in sinks) or sources & sinks
        return
    assert not cut & (sources | sinks)
    heavy.remove_nodes_from(cut)
    assert not any(nx.has_path(heavy, u, v) for u in sources for v in sinks)
    # The fewest: as many vertex-disjoint ways as vertices cut.
    split = nx.DiGraph()
    for v in range(n):
        split.add_edge((v, 0), (v, 1), capacity=n + 1 if v in sources | sinks else 1)
    for u, v in edges:
        split.add_edge((u, 1), (v, 0), capacity=n + 1)
    for v in sources:
        split.add_edge("S", (v, 0), capacity=n + 1)
    for v in sinks:
        split.add_edge((v, 1), "T", capacity=n + 1)
    assert len(cut) == nx.maximum_flow_value(split, "S", "T")
    assert cut <= reachable


def shuffled(trace: Trace, order: Sequence[int], turn: int) -> Trace:
    """The same trace, stored in another order."""
    edges = trace.edges[turn:] + trace.edges[:turn]
    return structs.replace(trace, events=tuple(trace.events[k] for k in order), edges=edges)


@given(valid_traces(), st.data())
def test_taint_depends_on_no_order_and_only_grows_with_sources(trace: Trace, data: st.DataObject) -> None:
    results = [e.id for e in trace.events if e.type == "tool_result"]
    chosen = set(data.draw(st.lists(st.sampled_from(results), unique=True))) if results else set()
    more = chosen | {results[0]} if results else chosen

    def with_sources(names: set[str]) -> Trace:
        events = tuple(structs.replace(e, trusted=e.id not in names) for e in trace.events)
        return structs.replace(trace, events=events)

    labels = Labels(consequential=frozenset({"search"}))
    one = taint(with_sources(chosen), labels)
    order = data.draw(st.permutations(range(len(trace.events))))
    turn = data.draw(st.integers(0, len(trace.edges)))
    again = shuffled(with_sources(chosen), order, turn)
    assert taint(again, labels) == one
    first, second = (blast(MeasuredTrace(t), one) for t in (with_sources(chosen), again))
    assert structs.replace(first, cut=()) == structs.replace(second, cut=())
    assert set(one.sources) == chosen <= set(one.tainted)
    assert set(one.tainted) == set(one.data) | set(one.control)
    assert set(one.violations) <= set(one.consequential) & set(one.tainted)
    bigger = taint(with_sources(more), labels)
    assert set(one.tainted) <= set(bigger.tainted)
    assert set(one.violations) <= set(bigger.violations)
    assert taint(with_sources(set()), labels).tainted == ()


def test_a_long_trace_is_no_deep_recursion() -> None:
    n = 20_000
    events: list[Event] = [event(1, "a0", "tool_result", **WEB)]
    edges: list[tuple[str, str, str]] = []
    for k in range(2, n):
        fields: dict[str, Any] = {"type_": "tool_call", "tool": "pay"} if k == n - 1 else {}
        events.append(event(k, f"a{k}", **fields))
        edges.append((f"e{k - 1}", f"e{k}", "message"))
    one = radius(events, edges, PAY)
    assert one.longest_path == n - 1
    assert one.min_cut.value == 1
