"""A trace's orchestration graph as arrays that a critic can go through once for all prefixes.

Every event is a vector of what it is (its type, decision, status, and the first words of its role, tool and choice, as
fixed random signs), and never of anybody's name. Agents form a tree: whoever is spawned stands under the spawner, all
others under the team itself. An event changes the agent it is about and those above it, so it has one row for each of
them, the states of these agents once it has happened. The team's rows are the prefixes.

Invariant: what is said of the first k events does not depend on later ones, and rows are as many as events times the
depth of their agents. `level` alone looks ahead: it says in which order rows can be computed, and not what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from baton.trace.graph.arrays import edge_endpoints
from baton.trace.graph.lineage import NO_EFFECT, NOT_BY_AGENTS, in_seq_order
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, STATUSES

Floats32 = NDArray[np.float32]
Places = NDArray[np.int64]

_SIGNS = 16
"""Random signs for a word."""
_KINDS = len(EVENT_TYPES) + len(DECISIONS) + len(STATUSES)
NUM_FEATURES = _KINDS + 3 * _SIGNS + 1
TEAM = 0
"""The node above all agents."""


class TeamGraph(NamedTuple):
    """Events, edges and rows of one trace, or of many side by side."""

    x: Floats32
    """Events x features."""
    src: Places
    dst: Places
    edge_type: Places
    left_at: Places
    """Events that follow the latest of the same agent, which stand in its frontier no more."""
    left: Places
    """Those that they follow."""
    event: Places
    """Of each row; -1: before anything happened."""
    node: Places
    parent_row: Places
    """The row of the agent above after the same event; -1 for the team's."""
    own: Places
    """The event where it is the row's own agent that acted; else -1."""
    born: Places
    """The event that spawned the row's agent; -1: none did."""
    counts: Floats32
    """Rows x (own events, agents spawned, depth)."""
    level: Places
    """Rows of lower levels do not depend on this one's."""
    values: Places
    """The team's rows in order: prefixes of 0, 1, 2, ... events."""

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """One pass over the events in causal order."""
        events = in_seq_order(trace)
        tree = _Tree()
        for number, event in enumerate(events):
            tree.add(number, event)
        src, dst = _in_order(trace, events)
        left_at, left = _frontier(src, dst, tree.node_of)
        rows = np.array(tree.rows, np.int64).reshape(-1, 5)
        node = rows[:, 1]
        code = {name: number for number, name in enumerate(EDGE_TYPES)}
        return cls(
            x=np.stack([_features(event) for event in events])
            if events
            else np.zeros((0, NUM_FEATURES), np.float32),
            src=src,
            dst=dst,
            edge_type=np.array([code[edge.type] for edge in trace.edges], np.int64),
            left_at=left_at,
            left=left,
            event=rows[:, 0],
            node=node,
            parent_row=rows[:, 2],
            own=rows[:, 3],
            born=rows[:, 4],
            counts=np.array(tree.counts, np.float32).reshape(-1, 3),
            level=np.array(tree.heights(), np.int64)[node],
            values=np.flatnonzero(node == TEAM),
        )

    @classmethod
    def together(cls, graphs: Sequence[TeamGraph]) -> Self:
        """Many traces side by side; values are one trace's after the other's."""
        events = np.cumsum([0, *(len(each.x) for each in graphs)])
        rows = np.cumsum([0, *(len(each.event) for each in graphs)])
        nodes = np.cumsum([0, *(int(each.node.max()) + 1 for each in graphs)])

        def moved(name: str, starts: Places) -> Places:
            parts = [getattr(each, name) for each in graphs]
            shifted = [np.where(p < 0, p, p + s) for p, s in zip(parts, starts, strict=False)]
            return np.concatenate(shifted)

        return cls(
            x=np.concatenate([each.x for each in graphs]),
            edge_type=np.concatenate([each.edge_type for each in graphs]),
            counts=np.concatenate([each.counts for each in graphs]),
            level=np.concatenate([each.level for each in graphs]),
            node=moved("node", nodes),
            **{name: moved(name, rows) for name in ("parent_row", "values")},
            **{
                name: moved(name, events)
                for name in ("src", "dst", "left_at", "left", "event", "own", "born")
            },
        )


class _Tree:
    """Agents as they come, and the rows of every event."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.above = [-1]
        self.depth = [0]
        self.born = [-1]
        self.num_own = [0]
        self.num_children = [0]
        self.node_of: list[int] = []
        self.rows: list[tuple[int, int, int, int, int]] = [(-1, TEAM, -1, -1, -1)]
        self.counts: list[tuple[int, int, int]] = [(0, 0, 0)]

    def add(self, number: int, event: Event) -> None:
        """The rows of an event: of the agent it is about and of all above it."""
        actor = self._actor(event)
        about = actor
        spawned = event.type == "spawn" and event.to is not None and event.status not in NO_EFFECT
        if spawned and event.to not in self.nodes:
            about = self._new(str(event.to), actor, number)
        self.node_of.append(actor)
        self.num_own[actor] += 1
        node = about
        while node >= 0:
            own = number if node == actor else -1
            next_row = len(self.rows) + 1 if node != TEAM else -1
            self.rows.append((number, node, next_row, own, self.born[node]))
            self.counts.append((self.num_own[node], self.num_children[node], self.depth[node]))
            node = self.above[node]

    def _actor(self, event: Event) -> int:
        if event.agent in self.nodes:
            return self.nodes[event.agent]
        if event.type in NOT_BY_AGENTS:  # a tool or a person: it is about whom it is told to
            return self.nodes.get(event.to or "", TEAM)
        return self._new(event.agent, TEAM, -1)

    def _new(self, agent: str, above: int, born: int) -> int:
        self.nodes[agent] = node = len(self.above)
        self.above.append(above)
        self.depth.append(self.depth[above] + 1)
        self.born.append(born)
        self.num_own.append(0)
        self.num_children.append(0)
        self.num_children[above] += 1
        return node

    def heights(self) -> list[int]:
        """Of every node, how many levels are below it."""
        found = [0] * len(self.above)
        for node in range(len(self.above) - 1, 0, -1):  # whoever is above came first
            above = self.above[node]
            found[above] = max(found[above], found[node] + 1)
        return found


def _in_order(trace: Trace, events: Sequence[Event]) -> tuple[Places, Places]:
    """Edges as places in causal order."""
    src, dst = edge_endpoints(trace)
    if all(a is b for a, b in zip(events, trace.events, strict=True)):
        return src.astype(np.int64), dst.astype(np.int64)
    rank = np.empty(len(events), np.int64)
    rank[[trace.position[event.id] for event in events]] = np.arange(len(events))
    return rank[src], rank[dst]


def _frontier(src: Places, dst: Places, node_of: Sequence[int]) -> tuple[Places, Places]:
    """What each event takes the place of among its agent's latest."""
    first: dict[int, int] = {}
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        if a < b and node_of[a] == node_of[b] and b < first.get(a, b + 1):
            first[a] = b
    return np.array(list(first.values()), np.int64), np.array(list(first), np.int64)


def _features(event: Event) -> Floats32:
    choice = event.options[event.choice] if event.options and event.choice is not None else None
    # What was asked and what it cost vary; which kind of event it was comes up again.
    told = _signs(event.type, event.decision, event.status, event.role, event.tool, _first(choice))
    if event.tokens is None:
        return told
    found = told.copy()
    found[-1] = np.log1p(max(0, event.tokens)) / 5
    return found


def _first(text: str | None) -> str | None:
    return text.split(maxsplit=1)[0] if text and not text.isspace() else None


@lru_cache(65_536)
def _signs(
    kind: str, decision: str, status: str, role: str | None, tool: str | None, word: str | None
) -> Floats32:
    found = np.zeros(NUM_FEATURES, np.float32)
    found[EVENT_TYPES.index(kind)] = 1
    found[len(EVENT_TYPES) + DECISIONS.index(decision)] = 1
    found[len(EVENT_TYPES) + len(DECISIONS) + STATUSES.index(status)] = 1
    for number, each in enumerate((role, tool, word)):
        if each is not None:
            bits = np.frombuffer(blake2b(each.encode(), digest_size=_SIGNS // 8).digest(), np.uint8)
            start = _KINDS + number * _SIGNS
            found[start : start + _SIGNS] = (np.unpackbits(bits) * 2.0 - 1.0) / 2
    return found
