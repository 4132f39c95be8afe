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
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from baton.errors import TraceError
from baton.trace.trace import Trace

__all__ = ["HASH_JOIN_FROM_EVENTS", "edge_endpoints"]

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


def _look_up(
    table: NDArray[np.int32], known: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int32]:
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
    more = f" and {len(lost) - len(named):,} more" if len(lost) > len(named) else ""
    return (
        f"trace {trace.trace_id}: edges must join events of the trace, but these do not: "
        f"{', '.join(named)}{more}. `baton validate` lists every problem."
    )


def _repeated(trace: Trace) -> str:
    times = Counter(event.id for event in trace.events)
    twice = [event_id for event_id, count in times.items() if count > 1]
    named = twice[:_NAMED_IN_ERROR]
    more = f" and {len(twice) - len(named):,} more" if len(twice) > len(named) else ""
    return (
        f"trace {trace.trace_id}: event ids must be unique, but these are not: "
        f"{', '.join(map(repr, named))}{more}. `baton validate` lists every problem."
    )
