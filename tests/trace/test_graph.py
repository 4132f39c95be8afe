"""The graph against networkx on random graphs, and what must hold of prefixes and errors."""

from __future__ import annotations

from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from strategies import valid_traces

from baton.errors import TraceError
from baton.trace.graph import arrays as endpoints
from baton.trace.graph import chains
from baton.trace.graph.arrays import Graph
from baton.trace.records import Edge, Event
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import EDGE_TYPES

Pairs = list[tuple[int, int]]


def trace_of(
    n: int, pairs: Pairs, seq: list[int] | None = None, durations: list[float | None] | None = None
) -> Trace:
    return Trace(
        header=Header(trace_id="t", task_id="k"),
        events=tuple(
            Event(
                id=f"e{i}",
                t=0.0,
                type="message",
                agent="a",
                seq=i if seq is None else seq[i],
                duration_s=None if durations is None else durations[i],
            )
            for i in range(n)
        ),
        edges=tuple(
            Edge(f"e{a}", f"e{b}", EDGE_TYPES[k % len(EDGE_TYPES)]) for k, (a, b) in enumerate(pairs)
        ),
    )


def reference(n: int, pairs: Pairs) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(pairs)
    return graph


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, Pairs, list[int]]:
    """Events, edges, seq: stored in any order, and sometimes with a seq that says nothing."""
    n = draw(st.integers(1, 24))
    place = draw(st.permutations(range(n)) | st.just(list(range(n))))
    nodes = st.integers(0, n - 1)
    drawn = draw(st.lists(st.tuples(nodes, nodes), max_size=40))
    if draw(st.booleans()):  # chains, as agents make them
        drawn += [(i, i + draw(st.integers(1, 3))) for i in range(n - 3)]
    at = {p: i for i, p in enumerate(place)}
    pairs = [(at[min(p)], at[max(p)]) for p in drawn if p[0] != p[1]]
    return n, pairs, draw(st.just(list(place)) | st.just([0] * n) | st.permutations(range(n)))


@st.composite
def any_graphs(draw: st.DrawFn) -> tuple[int, Pairs]:
    n = draw(st.integers(1, 10))
    return n, draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=18))


@pytest.fixture(params=["dict", "hashes"])
def join(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "hashes":
        monkeypatch.setattr(endpoints, "HASH_JOIN_FROM_EVENTS", 0)
    return str(request.param)


@pytest.mark.parametrize("many_slices", [1, chains.MANY_SLICES])
@given(dags(), st.data())
def test_cones_are_those_of_networkx(
    many_slices: int, dag: tuple[int, Pairs, list[int]], data: st.DataObject
) -> None:
    with patch.object(chains, "MANY_SLICES", many_slices):
        check_cones(dag, data)


def check_cones(dag: tuple[int, Pairs, list[int]], data: st.DataObject) -> None:
    n, pairs, seq = dag
    graph, expected = Graph.of(trace_of(n, pairs, seq)), reference(n, pairs)
    for i in range(n):
        assert graph.descendants(i).tolist() == sorted(nx.descendants(expected, i))
        assert graph.ancestors(i).tolist() == sorted(nx.ancestors(expected, i))
    starts = data.draw(st.sets(st.integers(0, n - 1)))
    union = set().union(*(nx.descendants(expected, i) for i in starts)) - starts
    assert graph.descendants(starts).tolist() == sorted(union)
    union = set().union(*(nx.ancestors(expected, i) for i in starts)) - starts
    assert graph.ancestors(starts).tolist() == sorted(union)


@given(dags())
def test_topological_order_keeps_every_edge(dag: tuple[int, Pairs, list[int]]) -> None:
    n, pairs, seq = dag
    graph = Graph.of(trace_of(n, pairs, seq))
    order = graph.topological_order().tolist()
    assert sorted(order) == list(range(n))
    place = {node: k for k, node in enumerate(order)}
    assert all(place[a] < place[b] for a, b in pairs)
    assert graph.find_cycle() is None
    if all(seq[a] < seq[b] for a, b in pairs):
        assert [seq[i] for i in order] == sorted(seq)


@given(any_graphs())
@example((1, [(0, 0)]))
@example((4, [(0, 1), (1, 2), (2, 1), (2, 3)]))
def test_cycles_are_found_where_networkx_finds_one(given_graph: tuple[int, Pairs]) -> None:
    n, pairs = given_graph
    graph = Graph.of(trace_of(n, pairs))
    cycle = graph.find_cycle()
    assert (cycle is None) == nx.is_directed_acyclic_graph(reference(n, pairs))
    if cycle is not None:
        assert len(set(cycle)) == len(cycle)
        assert set(zip(cycle, [*cycle[1:], cycle[0]], strict=True)) <= set(pairs)
        for operation in (graph.topological_order, graph.critical_path, lambda: graph.descendants(0)):
            with pytest.raises(TraceError, match=f"cycle: .*e{cycle[0]}"):
                operation()


@given(dags(), st.data())
def test_critical_path_is_as_long_as_networkx_says(
    dag: tuple[int, Pairs, list[int]], data: st.DataObject
) -> None:
    n, pairs, seq = dag
    durations = data.draw(st.lists(st.none() | st.integers(0, 9).map(float), min_size=n, max_size=n))
    graph = Graph.of(trace_of(n, pairs, seq, durations))
    weights = [d or 0.0 for d in durations]
    expected = reference(n, pairs)
    expected.add_edges_from(("start", i) for i in range(n))  # so that the first node's weight counts
    for _, b, fields in expected.edges(data=True):
        fields["weight"] = weights[b]
    path, length = graph.critical_path()
    assert length == nx.dag_longest_path_length(expected)
    assert sum(weights[i] for i in path) == length
    assert set(zip(path[:-1].tolist(), path[1:].tolist(), strict=True)) <= set(pairs)
    timed = any(d is not None for d in durations)
    assert graph.span == (length if timed else None)
    assert graph.work == (sum(weights) if timed else None)
    assert graph.critical_path(np.ones(n)).length == nx.dag_longest_path_length(reference(n, pairs)) + 1


@given(valid_traces(), st.integers(0, 40), st.integers(0, 40))
def test_prefixes_grow_and_keep_their_pasts(trace: Trace, s: int, t: int) -> None:
    graph = Graph.of(trace)
    smaller, larger = (set(graph.prefix(seq).tolist()) for seq in sorted((s, t)))
    assert smaller <= larger
    for i in smaller:
        assert set(graph.ancestors(i).tolist()) <= smaller
    assert {trace.events[i].id for i in smaller} == {event.id for event in trace.prefix(min(s, t)).events}


def test_csr_holds_every_edge_once(join: str) -> None:
    graph = Graph.of(trace_of(4, [(0, 2), (0, 1), (2, 3), (0, 2), (1, 3)]))
    assert graph.out.ptr.tolist() == [0, 3, 4, 5, 5]
    assert graph.out.node.tolist() == [2, 1, 2, 3, 3]
    assert graph.out.edge.tolist() == [0, 1, 3, 4, 2]
    assert graph.into.ptr.tolist() == [0, 0, 1, 3, 5]
    assert graph.into.node.tolist() == [0, 0, 0, 2, 1]
    assert [EDGE_TYPES[k] for k in graph.edge_type] == list(EDGE_TYPES[:5])
    assert graph.src.dtype == graph.dst.dtype == np.int32
    assert graph.edge_type.dtype == np.uint8


@given(st.integers(1, 300), st.randoms(use_true_random=False))
def test_both_joins_agree(n: int, random: object) -> None:
    pairs = [(random.randrange(n), random.randrange(n)) for _ in range(2 * n)]  # type: ignore[attr-defined]
    trace = trace_of(n, pairs)
    src, dst = endpoints.edge_endpoints(trace)
    by_hash = endpoints._join_on_hashes(trace)
    assert by_hash is not None
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == pairs
    assert list(zip(by_hash[0].tolist(), by_hash[1].tolist(), strict=True)) == pairs


def test_unknown_endpoints_are_named(join: str) -> None:
    trace = trace_of(3, [(0, 1)])
    bad = (Edge("e1", "nobody", "message"), Edge("ghost", "ghost", "causal"))
    with pytest.raises(TraceError) as caught:
        Graph.of(structs.replace(trace, edges=trace.edges + bad))
    assert "message 'e1' -> 'nobody' (no event 'nobody')" in str(caught.value)
    assert "causal 'ghost' -> 'ghost' (no event 'ghost')" in str(caught.value)
    assert "'e0'" not in str(caught.value)


def test_many_unknown_endpoints_are_counted(join: str) -> None:
    edges = tuple(Edge("e0", f"x{i}", "causal") for i in range(12))
    with pytest.raises(TraceError, match=r"'x4'\) and 7 more"):
        Graph.of(structs.replace(trace_of(1, []), edges=edges))


def test_repeated_ids_are_named(join: str) -> None:
    trace = trace_of(3, [])
    with pytest.raises(TraceError, match="unique, but these are not: 'e1'"):
        Graph.of(structs.replace(trace, events=(*trace.events, trace.events[1])))


def test_an_empty_trace_has_an_empty_graph(join: str) -> None:
    graph = Graph.of(trace_of(0, []))
    assert graph.topological_order().tolist() == []
    assert graph.find_cycle() is None
    assert graph.critical_path().length == 0.0
    assert graph.prefix(9).tolist() == graph.descendants([]).tolist() == graph.out.node.tolist() == []
    assert graph.work is None


def test_wrong_input_says_what_was_expected() -> None:
    graph = Graph.of(trace_of(3, [(0, 1)]))
    with pytest.raises(TraceError, match="index 3; expected 0 to 2"):
        graph.descendants(3)
    with pytest.raises(TraceError, match="index -1; expected 0 to 2"):
        graph.ancestors([0, -1])
    with pytest.raises(TraceError, match=r"shape \(2,\); expected one number for each of 3 events"):
        graph.critical_path([1.0, 2.0])


def test_a_cone_written_sparsely_and_densely() -> None:
    """Cones far below and above a sixteenth of the graph take different ways to be written out."""
    n = 400
    graph = Graph.of(trace_of(n, [(i, i + 1) for i in range(n - 1)]))
    assert graph.descendants(n - 4).tolist() == [n - 3, n - 2, n - 1]
    assert graph.descendants([n - 4, n - 2]).tolist() == [n - 3, n - 1]
    assert graph.descendants(3).tolist() == list(range(4, n))
    assert graph.ancestors(3).tolist() == [0, 1, 2]
    assert graph.ancestors(np.int32(n - 1)).tolist() == list(range(n - 1))
