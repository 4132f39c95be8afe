"""The trace's graph G = (V, E) as arrays: node i is `trace.events[i]`, an edge is a pair of indices.

`Graph.of(trace)` resolves the edges once; everything else is computed when first asked for and
kept. Every operation is linear in events and edges, and a causal cone after the first is linear
in the cone. Figures against networkx and other libraries: design/graph.md.

Invariant: `src` and `dst` are in the order of `trace.edges`, and no edge points outside. A graph
may hold a cycle (`find_cycle` says where); what needs an order then raises `TraceError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.errors import TraceError
from baton.trace.chains import Chains
from baton.trace.endpoints import edge_endpoints
from baton.trace.trace import Trace
from baton.trace.vocabulary import EDGE_TYPES

__all__ = ["CriticalPath", "Csr", "Graph"]

Indices = NDArray[np.int32]

_BLOCK_EDGES = 65_536


class Csr(NamedTuple):
    """Edges grouped by one end: those of node i are `[ptr[i] : ptr[i + 1]]` of the other two."""

    ptr: Indices
    node: Indices
    """The other end."""
    edge: Indices
    """Index into `src`, `dst`, `edge_type` and `trace.edges`."""


class CriticalPath(NamedTuple):
    """The heaviest path through the graph."""

    path: Indices
    """Its events, in causal order."""
    length: float


class Graph:
    """A trace's events and edges as arrays."""

    def __init__(self, trace: Trace, src: Indices, dst: Indices) -> None:
        self.trace = trace
        self.n = len(trace.events)
        self.src = src
        self.dst = dst

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Raises `TraceError` naming the edges whose ends are not events, or the ids that repeat."""
        return cls(trace, *edge_endpoints(trace))

    def __repr__(self) -> str:
        return f"Graph({self.trace.trace_id}: {self.n:,} events, {len(self.src):,} edges)"

    @cached_property
    def edge_type(self) -> NDArray[np.uint8]:
        """Index of each edge's type in `EDGE_TYPES`."""
        code = {name: index for index, name in enumerate(EDGE_TYPES)}
        types = map(attrgetter("type"), self.trace.edges)
        return np.fromiter(map(code.__getitem__, types), np.uint8, count=len(self.src))

    @cached_property
    def seq(self) -> NDArray[np.int64]:
        try:
            return np.fromiter(map(attrgetter("seq"), self.trace.events), np.int64, count=self.n)
        except OverflowError:
            raise TraceError(self._out_of_range()) from None

    def _out_of_range(self) -> str:
        event = max(self.trace.events, key=lambda event: abs(event.seq))
        bits = event.seq.bit_length()
        seq = (
            f"{event.seq}" if bits <= 128 else f"of {bits:,} bits"
        )  # Python does not print any number of digits
        return (
            f"trace {self.trace.trace_id}: event {event.id!r} has seq {seq}; expected an integer from 0 to 2^63 - 1. "
            "Type: baton validate FILE, for every problem."
        )

    @cached_property
    def out(self) -> Csr:
        """Edges by source, in the order of `trace.edges` within each."""
        return _grouped(self.n, self.src, self.dst)

    @cached_property
    def into(self) -> Csr:
        """Edges by destination, in the order of `trace.edges` within each."""
        return _grouped(self.n, self.dst, self.src)

    def prefix(self, seq: int) -> Indices:
        """The events of G<=t: those up to and including `seq`; sorted."""
        return np.flatnonzero(self.seq <= seq).astype(np.int32)

    def descendants(self, start: int | Iterable[int]) -> Indices:
        """The causal cone: every event that depends on `start`, which is left out; sorted.

        Of several starts it is the union of their cones without the starts themselves.
        """
        return self._cone(start, forward=True)

    def ancestors(self, start: int | Iterable[int]) -> Indices:
        """Every event that `start` depends on; several starts as in `descendants`."""
        return self._cone(start, forward=False)

    def topological_order(self) -> Indices:
        """All events, each after what it depends on: by `seq` wherever the edges agree with it."""
        if self._order is None:
            cycle = " -> ".join(self.trace.events[i].id for i in self._some_cycle())
            raise TraceError(
                f"trace {self.trace.trace_id} has a cycle: {cycle} and back. Dependencies must be acyclic; "
                "`baton validate` lists every problem."
            )
        return self._order

    def find_cycle(self) -> list[int] | None:
        """Events of one cycle, each with an edge to the next and the last to the first; None: acyclic."""
        return self._some_cycle() if self._order is None else None

    def critical_path(self, weights: ArrayLike | None = None) -> CriticalPath:
        """The path with the largest sum of node weights; by default `duration_s`, unmeasured as 0."""
        weight = self.durations if weights is None else np.asarray(weights, np.float64)
        if weight.shape != (self.n,):
            raise TraceError(
                f"got weights of shape {weight.shape}; expected one number for each of {self.n:,} events."
            )
        if self.n == 0:
            return CriticalPath(np.empty(0, np.int32), 0.0)
        src, dst = self._edges_in_order
        total: list[float] = weight.tolist()
        before = [-1] * self.n
        # Edges into an event come before any edge out of it, so one pass is enough. Blocks keep the
        # lists that Python loops over inside the processor's cache.
        for a in range(0, len(src), _BLOCK_EDGES):
            block = dst[a : a + _BLOCK_EDGES]
            ends = zip(
                src[a : a + _BLOCK_EDGES].tolist(), block.tolist(), weight[block].tolist(), strict=True
            )
            for source, destination, own in ends:
                through = total[source] + own
                if through > total[destination]:
                    total[destination] = through
                    before[destination] = source
        length = max(total)
        node = total.index(length)
        path = [node]
        while (node := before[node]) >= 0:
            path.append(node)
        return CriticalPath(np.array(path[::-1], np.int32), length)

    @cached_property
    def durations(self) -> NDArray[np.float64]:
        """`duration_s` of each event, 0 where it was not measured: a weight, not a measurement."""
        values = (event.duration_s or 0.0 for event in self.trace.events)
        return np.fromiter(values, np.float64, count=self.n)

    @cached_property
    def work(self) -> float | None:
        """Seconds of all events together; None where none was timed."""
        return float(self.durations.sum()) if self._timed else None

    @cached_property
    def span(self) -> float | None:
        """Seconds of the path with the most of them, overlaps counted twice; without: `baton.trace.critical`."""
        return self.critical_path().length if self._timed else None

    @cached_property
    def _timed(self) -> bool:
        return any(event.duration_s is not None for event in self.trace.events)

    def _cone(self, start: int | Iterable[int], *, forward: bool) -> Indices:
        given = [start] if isinstance(start, int | np.integer) else list(start)
        for index in given:
            if not 0 <= index < self.n:
                raise TraceError(f"got event index {index}; expected 0 to {self.n - 1} in {self!r}.")
        walk = self._chains.forward if forward else self._chains.backward
        return walk.reach(np.array(given, np.int32))

    @cached_property
    def _chains(self) -> Chains:
        if not self._stored_in_order:
            self.topological_order()  # raises on a cycle
        return Chains(self.n, self.src, self.dst)

    @cached_property
    def _stored_in_order(self) -> bool:
        return bool((self.src < self.dst).all())

    @cached_property
    def _edges_in_order(self) -> tuple[Indices, Indices]:
        """Sources and destinations, sorted by the destination's place in the topological order."""
        place = self.dst
        if not self._stored_in_order:
            rank = np.empty(self.n, np.int32)
            rank[self.topological_order()] = np.arange(self.n, dtype=np.int32)
            place = rank[self.dst]
        if (place[1:] >= place[:-1]).all():
            return self.src, self.dst
        by_place = np.argsort(place, kind="stable")
        return self.src[by_place], self.dst[by_place]

    @cached_property
    def _order(self) -> Indices | None:
        """Events as stored, else by seq, else sorted by the edges alone; None: there is a cycle."""
        stored = np.arange(self.n, dtype=np.int32)
        if self._stored_in_order and (self.seq[1:] >= self.seq[:-1]).all():
            return stored
        if (self.seq[self.src] < self.seq[self.dst]).all():
            return np.argsort(self.seq, kind="stable").astype(np.int32)
        order = self._sorted_by_edges
        return np.array(order, np.int32) if len(order) == self.n else None

    @cached_property
    def _sorted_by_edges(self) -> list[int]:
        """Kahn's algorithm; events on a cycle or behind one are missing."""
        waiting = np.bincount(self.dst, minlength=self.n)
        order: list[int] = np.flatnonzero(waiting == 0).tolist()
        left: list[int] = waiting.tolist()
        ptr: list[int] = self.out.ptr.tolist()
        after: list[int] = self.out.node.tolist()
        for node in order:
            for follower in after[ptr[node] : ptr[node + 1]]:
                left[follower] -= 1
                if left[follower] == 0:
                    order.append(follower)
        return order

    def _some_cycle(self) -> list[int]:
        """Going back from an event that Kahn's algorithm left over must come round."""
        left = np.ones(self.n, bool)
        left[self._sorted_by_edges] = False
        inside = left[self.src] & left[self.dst]
        before = np.empty(self.n, np.int32)
        before[self.dst[inside]] = self.src[inside]  # any one predecessor that was left over too
        node = int(np.flatnonzero(left)[0])
        seen: dict[int, int] = {}
        while node not in seen:
            seen[node] = len(seen)
            node = int(before[node])
        return list(seen)[seen[node] :][::-1]


def _grouped(n: int, by: Indices, other: Indices) -> Csr:
    edge = np.argsort(by, kind="stable").astype(np.int32)
    ptr = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(by, minlength=n), out=ptr[1:])
    return Csr(ptr, other[edge], edge)
