"""Edges name events by id; arrays want their indices. This is the join.

Small traces go through `Trace.position`, an ordinary dict. In a large one nearly all the time of
a dict look-up is waiting for memory, one string after the other, so large traces are joined on the
ids' 64-bit hashes in numpy, where the look-ups overlap (three times as fast at a million events).

Invariant: an unknown endpoint or a repeated id always ends in `TraceError`, through the dict: the
join on hashes gives up on anything but one clean match per endpoint. What remains is an unknown id
whose keyed 64-bit hash equals a known one's: 1 in 2^64 for each pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.errors import TraceError
from baton.trace.graph.chains import Chains
from baton.trace.trace import Trace
from baton.trace.vocabulary import EDGE_TYPES

Indices = NDArray[np.int32]
Hashes = NDArray[np.int64]

HASH_JOIN_FROM_EVENTS = 50_000
_NAMED_IN_ERROR = 5

_source = attrgetter("src")
_destination = attrgetter("dst")


def edge_endpoints(trace: Trace) -> tuple[Indices, Indices]:
    """For every edge, the index of its source and of its destination in `trace.events`."""
    if len(trace.events) >= HASH_JOIN_FROM_EVENTS:
        found = _join_on_hashes(trace)
        if found is not None:
            return found
    position = trace.position
    if len(position) != len(trace.events):
        raise TraceError(_repeated(trace))
    edges = trace.edges
    try:
        # By way of lists: a comprehension reads attributes faster than attrgetter.
        src = np.array([position[edge.src] for edge in edges], np.int32)
        dst = np.array([position[edge.dst] for edge in edges], np.int32)
    except KeyError:
        raise TraceError(_unknown(trace)) from None
    return src, dst


def _join_on_hashes(trace: Trace) -> tuple[Indices, Indices] | None:
    """The same through an open-addressing table filled and read with whole arrays; None: not clean."""
    known = _hashes(map(attrgetter("id"), trace.events), len(trace.events))
    mask = (1 << (2 * len(known)).bit_length()) - 1  # at most half full
    table = np.full(mask + 1, -1, np.int32)
    who = np.arange(len(known), dtype=np.int32)
    slot = known & mask
    while len(who):
        free = table[slot] < 0
        table[slot[free]] = who[free]
        lost = table[slot] != who
        who, slot = who[lost], slot[lost]
        if (known[table[slot]] == known[who]).any():
            return None
        slot = (slot + 1) & mask
    count = len(trace.edges)
    src = _look_up(table, known, _hashes(map(_source, trace.edges), count))
    dst = _look_up(table, known, _hashes(map(_destination, trace.edges), count))
    return None if (src < 0).any() or (dst < 0).any() else (src, dst)


def _hashes(ids: Iterable[str], count: int) -> Hashes:
    return np.fromiter(map(hash, ids), np.int64, count=count)


def _look_up(table: Indices, known: Hashes, wanted: Hashes) -> Indices:
    """The index of each wanted hash, -1 where there is none."""
    mask = len(table) - 1
    found: Indices = table[wanted & mask]
    missed = np.flatnonzero((found >= 0) & (known[found] != wanted))
    slot = wanted[missed] & mask
    while len(missed):
        slot = (slot + 1) & mask
        there = table[slot]
        found[missed] = there
        again = (there >= 0) & (known[there] != wanted[missed])
        missed, slot = missed[again], slot[again]
    return found


def _unknown(trace: Trace) -> str:
    known = trace.position
    lost = [edge for edge in trace.edges if edge.src not in known or edge.dst not in known]
    named = [
        f"{edge.type} {edge.src!r} -> {edge.dst!r} (no event "
        + " and ".join(repr(end) for end in dict.fromkeys((edge.src, edge.dst)) if end not in known)
        + ")"
        for edge in lost[:_NAMED_IN_ERROR]
    ]
    return _but(trace, "edges must join events of the trace, but these do not", named, len(lost))


def _repeated(trace: Trace) -> str:
    times = Counter(event.id for event in trace.events)
    twice = [event_id for event_id, count in times.items() if count > 1]
    named = [repr(event_id) for event_id in twice[:_NAMED_IN_ERROR]]
    return _but(trace, "event ids must be unique, but these are not", named, len(twice))


def _but(trace: Trace, what: str, named: list[str], count: int) -> str:
    more = f" and {count - len(named):,} more" if count > len(named) else ""
    listed = f"{', '.join(named)}{more}"
    return f"trace {trace.trace_id}: {what}: {listed}. `baton validate` lists every problem."


# The trace's graph G = (V, E) as arrays: node i is `trace.events[i]`, an edge is a pair of indices.
#
# `Graph.of(trace)` resolves the edges once; everything else is computed when first asked for and
# kept. Every operation is linear in events and edges, and a causal cone after the first is linear
# in the cone. Figures against networkx and other libraries: design/graph.md.
#
# Invariant: `src` and `dst` are in the order of `trace.edges`, and no edge points outside. A graph
# may hold a cycle (`find_cycle` says where); what needs an order then raises `TraceError`.


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
        # Python does not print any number of digits.
        seq = f"{event.seq}" if bits <= 128 else f"of {bits:,} bits"
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
        return within_reason(event.duration_s for event in self.trace.events)

    @cached_property
    def work(self) -> float | None:
        """Seconds of all events together; None where none was timed."""
        return float(self.durations.sum()) if self._timed else None

    @cached_property
    def span(self) -> float | None:
        """Seconds of the path with the most of them, overlaps counted twice; without: `baton.trace.graph.timing`."""
        return self.critical_path().length if self._timed else None

    @cached_property
    def _timed(self) -> bool:
        return any(event.duration_s is not None for event in self.trace.events)

    def _cone(self, start: int | Iterable[int], *, forward: bool) -> Indices:
        given = [int(start)] if isinstance(start, int | np.integer) else list(start)
        for index in given:
            if not 0 <= index < self.n:
                raise TraceError(f"got event index {index}; expected 0 to {self.n - 1} in {self!r}.")
        walk = self._chains.forward if forward else self._chains.backward
        narrow = walk.reach_narrowly(given[0]) if len(given) == 1 else None
        return walk.reach(np.array(given, np.int32)) if narrow is None else narrow

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


_MOST_SECONDS = 1e15


def within_reason(seconds: Iterable[float | None]) -> NDArray[np.float64]:
    """Times as weights: unmeasured ones as 0, and none longer than any clock shows, so that they can be added up."""
    values = np.array([0.0 if each is None else each for each in seconds], np.float64)
    return np.nan_to_num(values).clip(-_MOST_SECONDS, _MOST_SECONDS)
