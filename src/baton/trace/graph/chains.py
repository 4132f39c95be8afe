"""Causal cones by chain cover.

An agent's events form a path, and a trace is mostly such paths. So the graph is cut into chains:
paths of real edges that share no event. What follows an event is then a suffix of each chain it
reaches, and what precedes it is a prefix; a cone is found by looking at the edges *between* chains
alone (about 0.3 an event), each at most once, and written out as ranges. Few edges at a time are
looked at one by one, many at once, so that neither a narrow cone nor a wide one pays for the other.

Any cover gives the right cone; a good one (few chains) gives it faster. Here each event takes its
first incoming edge, and each event keeps the first of those that took it: recorders write the
temporal edge of an event first, so chains follow agents.

Invariant: the graph is acyclic (the caller checks); positions number the chains one after the
other, each in causal order. Idea: Simon, "An improved algorithm for transitive closure on acyclic
digraphs" (1988).
"""

from __future__ import annotations

from collections import deque
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]
Wide = NDArray[np.intp]
Entries = deque[tuple[Indices, Indices]]

_DENSE_SHARE = 16  # a cone above 1/16 of the graph is cheaper to mark than to sort
MANY_SLICES = 16  # from here on numpy's fixed price is less than a loop's
_MANY_EDGES = 256
_NARROW = 64  # edges between chains up to which looking at each is cheaper than any array


class Chains:
    """A chain cover of an acyclic graph of `n` events."""

    def __init__(self, n: int, src: Indices, dst: Indices) -> None:
        self._src, self._dst = src.astype(np.intp), dst.astype(np.intp)  # what numpy indexes with
        head, depth = _heads(n, *_links(n, self._src, self._dst))
        is_head = depth == 0
        number = (np.cumsum(is_head, dtype=np.int32) - np.int32(1)).take(head)
        ends = np.cumsum(np.bincount(number), dtype=np.int32)
        starts = np.concatenate((np.zeros(1, np.int32), ends))
        self._number, self._starts = number, starts
        self._position = starts.take(number) + depth

    @cached_property
    def forward(self) -> Walk:
        return Walk(self._position, self._number, self._starts[1:], self._src, self._dst)

    @cached_property
    def backward(self) -> Walk:
        n = np.int32(len(self._position))  # the same chains, read from their other end
        return Walk(n - 1 - self._position, self._number, n - self._starts[:-1], self._dst, self._src)


class Walk:
    """Cones in one direction. `position` and `chain` are by event, `ends` (past its last position) by chain."""

    def __init__(self, position: Indices, chain: Indices, ends: Indices, src: Wide, dst: Wide) -> None:
        n = len(position)
        self._position, self._chain, self._ends = position, chain, ends
        self._event = np.empty(n, np.int32)
        self._event[position] = np.arange(n, dtype=np.int32)
        between = np.flatnonzero(chain.take(src) != chain.take(dst))
        origin = position.take(src.take(between))
        target = dst.take(between.take(np.argsort(origin)))
        self._first_edge = np.zeros(n + 1, np.int32)
        np.cumsum(np.bincount(origin, minlength=n), out=self._first_edge[1:])
        self._target, self._target_chain = position.take(target), chain.take(target)
        self._spare: list[Indices] = []  # arrays to work in, left as they were found

    def reach_narrowly(self, start: int) -> Indices | None:
        """`reach` of one event without a whole array to work in; None: the cone is a wide one, and that is worth it."""
        first_edge, ends = self._first_edge.data, self._ends.data
        target, target_chain = self._target.data, self._target_chain.data
        lows: dict[int, int] = {}
        entries = [(self._position.item(start), self._chain.item(start))]
        for position, chain in entries:  # grows meanwhile: first in, first out
            before = lows.get(chain)
            if before is None:
                before = ends[chain]
            if position < before:
                lows[chain] = position
                a, b = first_edge[position], first_edge[before]
                if a < b:
                    if len(entries) + b - a > _NARROW:
                        return None
                    entries += zip(target[a:b], target_chain[a:b], strict=True)
        parts = [self._event[low : ends[chain]] for chain, low in lows.items()]
        events = np.concatenate(parts)
        if len(events) * _DENSE_SHARE > len(self._event):
            return None
        events.sort()
        return events[1:] if events[0] == start else events[events != start]

    def reach(self, starts: Indices) -> Indices:
        """Every event reached from `starts`, which are left out; sorted."""
        low = self._spare.pop() if self._spare else self._ends.copy()  # the lowest position reached, by chain
        touched: set[int] = set()
        entries = deque([(self._position[starts], self._chain[starts])])
        while entries:
            # First in, first out lowers a chain fewer times.
            if len(entries) >= MANY_SLICES or len(entries[0][0]) >= _MANY_EDGES:
                positions, chains = map(np.concatenate, zip(*entries, strict=True))
                entries.clear()
                self._lower_at_once(low, positions, chains, touched, entries)
            else:
                self._lower(low, *entries.popleft(), touched, entries)
        chains = np.fromiter(touched, np.intp, count=len(touched))
        events = self._written_out(low.take(chains), self._ends.take(chains), starts)
        low[chains] = self._ends[chains]
        self._spare.append(low)
        return events

    def _lower(
        self, low: Indices, positions: Indices, chains: Indices, touched: set[int], entries: Entries
    ) -> None:
        lowest, first_edge = low.data, self._first_edge.data  # a memoryview gives plain ints, faster
        for position, chain in zip(positions.tolist(), chains.tolist(), strict=True):
            before = lowest[chain]
            if position < before:
                lowest[chain] = position
                touched.add(chain)
                a, b = first_edge[position], first_edge[before]
                if a < b:
                    entries.append((self._target[a:b], self._target_chain[a:b]))

    def _lower_at_once(
        self, low: Indices, positions: Indices, chains: Indices, touched: set[int], entries: Entries
    ) -> None:
        lower = positions < low.take(chains)
        positions, chains = positions[lower], chains[lower]
        if not len(chains):
            return
        by_chain = np.lexsort((positions, chains))
        positions, chains = positions[by_chain], chains[by_chain]
        first = np.flatnonzero(np.diff(chains, prepend=np.int32(-1)))
        positions, chains = positions[first], chains[first]
        a, b = self._first_edge.take(positions), self._first_edge.take(low.take(chains))
        low[chains] = positions
        touched.update(chains.tolist())
        edges = _ranges(a, b)
        if len(edges):
            entries.append((self._target.take(edges), self._target_chain.take(edges)))

    def _written_out(self, lows: Indices, ends: Indices, starts: Indices) -> Indices:
        events = self._event.take(_ranges(lows, ends))
        if len(events) * _DENSE_SHARE > len(self._event):
            marked = np.zeros(len(self._event), bool)
            marked[events] = True
            marked[starts] = False
            return np.flatnonzero(marked).astype(np.int32)
        events.sort()
        keep = events != starts[0] if len(starts) == 1 else ~np.isin(events, starts)
        rest: Indices = events[keep]
        return rest


def _ranges(starts: Indices, ends: Indices) -> Indices:
    """The numbers from each start up to its end, one range after the other."""
    lengths = ends - starts
    stops = lengths.cumsum(dtype=np.int32)
    total = int(stops[-1]) if len(stops) else 0
    numbers: Indices = np.arange(total, dtype=np.int32) + (starts - stops + lengths).repeat(lengths)
    return numbers


def _links(n: int, src: Wide, dst: Wide) -> tuple[Wide, Wide]:
    """The edges inside chains: at most one into each event and one out of each."""
    before = np.full(n, -1)
    before[dst[::-1]] = src[::-1]  # of repeated assignments the last, here the first edge, stays
    taken = np.flatnonzero(before >= 0)
    after = np.full(n, -1)
    after[before.take(taken)[::-1]] = taken[::-1]
    origin = np.flatnonzero(after >= 0)
    return origin, after.take(origin)


def _heads(n: int, src: Wide, dst: Wide) -> tuple[Wide, Indices]:
    """The head of each event's chain and the distance to it, by pointer jumping: log(longest) rounds."""
    up = np.arange(n)
    up[dst] = src
    depth = np.zeros(n, np.int32)
    depth[dst] = 1
    while True:
        step = depth.take(up)  # zero once everyone points at a head
        if not step.any():
            return up, depth
        depth += step
        up = up.take(up)
