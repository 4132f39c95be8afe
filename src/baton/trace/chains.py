"""Causal cones by chain cover.

An agent's events form a path, and a trace is mostly such paths. So the graph is cut into chains:
paths of real edges that share no event. What follows an event is then a suffix of each chain it
reaches, and what precedes it is a prefix; a cone is found by looking at the edges *between* chains
alone (about 0.3 an event), each at most once, and written out as ranges.

Any cover gives the right cone; a good one (few chains) gives it faster. Here each event takes its
first incoming edge, and each event keeps the first of those that took it: recorders write the
temporal edge of an event first, so chains follow agents.

Invariant: the graph is acyclic (the caller checks); positions number the chains one after the
other, each in causal order. Idea: Simon, "An improved algorithm for transitive closure on acyclic
digraphs" (1988).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chains"]

Indices = NDArray[np.int32]

_DENSE_SHARE = 16  # a cone above 1/16 of the graph is cheaper to mark than to sort


class Chains:
    """A chain cover of an acyclic graph of `n` events."""

    def __init__(self, n: int, src: Indices, dst: Indices) -> None:
        self._src, self._dst = src, dst
        head, depth = _heads(n, *_links(n, src, dst))
        size = np.bincount(head, minlength=n)
        end = np.cumsum(size)
        self._start = (end - size)[head].astype(np.int32)
        self._end = end[head].astype(np.int32)
        self._position = self._start + depth

    @cached_property
    def forward(self) -> Walk:
        return Walk(self._position, self._end, self._src, self._dst)

    @cached_property
    def backward(self) -> Walk:
        n = len(self._position)  # the same chains, read from their other end
        return Walk(np.int32(n - 1) - self._position, np.int32(n) - self._start, self._dst, self._src)


class Walk:
    """Cones in one direction. `position` and `end` (of its chain) are by event."""

    def __init__(self, position: Indices, end: Indices, src: Indices, dst: Indices) -> None:
        n = len(position)
        self._position, self._end = position, end
        self._event = np.empty(n, np.int32)
        self._event[position] = np.arange(n, dtype=np.int32)
        between = np.flatnonzero(end[src] != end[dst])
        origin = position[src[between]]
        target = dst[between[np.argsort(origin, kind="stable")]]
        self._first_edge = np.zeros(n + 1, np.int32)
        np.cumsum(np.bincount(origin, minlength=n), out=self._first_edge[1:])
        self._target, self._target_end = position[target], end[target]

    def reach(self, starts: Indices) -> Indices:
        """Every event reached from `starts`, which are left out; sorted."""
        first_edge = self._first_edge.data  # a memoryview gives plain ints, faster
        target, target_end = self._target, self._target_end
        reached: dict[int, int] = {}  # end of a chain -> the lowest position reached in it
        entries = [(self._position[starts], self._end[starts])]
        for positions, ends in entries:  # grows; first in, first out lowers a chain fewer times
            for position, end in zip(positions.tolist(), ends.tolist(), strict=True):
                lowest = reached.get(end, end)
                if position < lowest:
                    reached[end] = position
                    a, b = first_edge[position], first_edge[lowest]
                    if a < b:
                        entries.append((target[a:b], target_end[a:b]))
        return self._written_out(reached, starts)

    def _written_out(self, reached: dict[int, int], starts: Indices) -> Indices:
        ends = np.fromiter(reached.keys(), np.int32, count=len(reached))
        lows = np.fromiter(reached.values(), np.int32, count=len(reached))
        lengths = ends - lows
        total = int(lengths.sum())
        offset = np.cumsum(lengths, dtype=np.int32) - lengths
        positions = np.arange(total, dtype=np.int32) + np.repeat(lows - offset, lengths)
        events = self._event[positions]
        if total * _DENSE_SHARE > len(self._event):
            marked = np.zeros(len(self._event), bool)
            marked[events] = True
            marked[starts] = False
            return np.flatnonzero(marked).astype(np.int32)
        events.sort()
        keep = np.ones(total, bool)
        keep[np.searchsorted(events, starts)] = False
        return events[keep]


def _links(n: int, src: Indices, dst: Indices) -> tuple[Indices, Indices]:
    """The edges inside chains: at most one into each event and one out of each."""
    before = np.full(n, -1, np.int32)
    before[dst[::-1]] = src[::-1]  # of repeated assignments the last, here the first edge, stays
    taken = np.flatnonzero(before >= 0).astype(np.int32)
    after = np.full(n, -1, np.int32)
    after[before[taken][::-1]] = taken[::-1]
    origin = np.flatnonzero(after >= 0).astype(np.int32)
    return origin, after[origin]


def _heads(n: int, src: Indices, dst: Indices) -> tuple[NDArray[np.intp], Indices]:
    """The head of each event's chain and the distance to it, by pointer jumping: log(longest) rounds."""
    up = np.arange(n)
    up[dst] = src
    depth = np.zeros(n, np.int32)
    depth[dst] = 1
    while True:
        step = depth[up]  # zero once everyone points at a head
        if not step.any():
            return up, depth
        depth += step
        up = up[up]
