"""Blast radius: how far taint got, and how few events would have to be guarded to stop it.

Tainted agents, tainted consequential calls, share of the cost, longest tainted path, and the least number of
events to guard (endorse or stop) so that no source reaches a consequential call. Taint travels along the
edges that carry it, and through an agent's context: what it has read reaches all it does later, so
guarding one of its acts does not clean the next. Events that are endorsed count as guarded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.figure import Figure, not_measured
from baton.measure.measured import CostKind, MeasuredTrace
from baton.measure.safety.taint import Taint
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.provenance import CONTROL_EDGES, DATA_EDGES

# The fewest vertices that separate sources from sinks in a directed graph: Menger's theorem by maximum flow.
#
# Each vertex that may be cut is an arc of capacity 1 between its two halves; all other arcs have no limit.
# Source: Dinic 1970; with unit capacities O(E sqrt V).


def min_vertex_cut(
    n: int, edges: Iterable[tuple[int, int]], sources: Collection[int], sinks: Collection[int],
    uncuttable: Collection[int] = (),
) -> set[int] | None:  # fmt: skip
    """The cut nearest the sources; sources and sinks are not in it. None: nothing separates them."""
    network = _Network(2 * n + 2)
    start, end = 2 * n, 2 * n + 1
    fixed = {*sources, *sinks, *uncuttable}
    unlimited = n + 1
    for v in range(n):
        network.arc(2 * v, 2 * v + 1, unlimited if v in fixed else 1)
    for u, v in edges:
        network.arc(2 * u + 1, 2 * v, unlimited)
    for v in sources:
        network.arc(start, 2 * v, unlimited)
    for v in sinks:
        network.arc(2 * v + 1, end, unlimited)
    if network.push(start, end) > n:
        return None
    level = network.levels(start)
    return {v for v in range(n) if level[2 * v] >= 0 and level[2 * v + 1] < 0}


class _Network:
    """Arcs in pairs: arc k and its way back, k ^ 1."""

    def __init__(self, n: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(n)]
        self.to: list[int] = []
        self.room: list[int] = []

    def arc(self, u: int, v: int, capacity: int) -> None:
        self.out[u].append(len(self.to))
        self.out[v].append(len(self.to) + 1)
        self.to += (v, u)
        self.room += (capacity, 0)

    def levels(self, start: int) -> list[int]:
        """Arcs from `start` along those with room; -1: out of reach."""
        level = [-1] * len(self.out)
        level[start] = 0
        queue = [start]
        for u in queue:
            for k in self.out[u]:
                if self.room[k] and level[self.to[k]] < 0:
                    level[self.to[k]] = level[u] + 1
                    queue.append(self.to[k])
        return level

    def push(self, start: int, end: int) -> int:
        """The maximum flow; stops early once it is plain that nothing limits it."""
        total = 0
        limit = len(self.out) // 2
        while total < limit:
            level = self.levels(start)
            if level[end] < 0:
                return total
            upto = [0] * len(self.out)  # arcs of each vertex that are known to lead nowhere
            while (more := self._augment(start, end, level, upto)) > 0:
                total += more
        return total

    def _augment(self, start: int, end: int, level: list[int], upto: list[int]) -> int:
        """One path, found without recursion: traces are deeper than Python's stack."""
        path: list[int] = []
        u = start
        while u != end:
            while upto[u] < len(self.out[u]):
                k = self.out[u][upto[u]]
                if self.room[k] and level[self.to[k]] == level[u] + 1:
                    break
                upto[u] += 1
            else:
                if not path:
                    return 0
                u = self.to[path.pop() ^ 1]
                upto[u] += 1
                continue
            path.append(k)
            u = self.to[k]
        amount = min(self.room[k] for k in path)
        for k in path:
            self.room[k] -= amount
            self.room[k ^ 1] += amount
        return amount


class Blast(Struct, frozen=True, kw_only=True):
    """How far taint got in one trace."""

    tainted_agents: int
    agent_share: Figure
    consequential_calls: Figure
    """Tainted ones."""
    cost_tokens: Figure
    """Share of the tokens that went into tainted events."""
    cost_seconds: Figure
    longest_path: int
    """Events on the longest chain of tainted ones."""
    min_cut: Figure
    """Events to guard between the sources and the consequential calls."""
    cut: tuple[str, ...]
    """Which, nearest the sources."""


def blast(reading: MeasuredTrace, found: Taint) -> Blast:
    """Measure what `taint` found."""
    tainted = set(found.tainted)
    agents = len(reading.lineage)
    reached = [agent for agent in found.agents if agent in reading.lineage]
    sinks = [event for event in found.consequential if event in tainted]
    said = bool(found.num_labelled_calls)
    silent = not_measured("no tool call says whether it is consequential; name such tools")
    figure, cut = _cut(reading, found, sinks) if said else (silent, ())
    return Blast(
        tainted_agents=len(reached),
        agent_share=Figure(len(reached) / agents, None, None, agents)
        if agents
        else not_measured("no agents"),
        consequential_calls=Figure(float(len(sinks)), None, None, 1) if said else silent,
        cost_tokens=_share(reading, tainted, "tokens"),
        cost_seconds=_share(reading, tainted, "seconds"),
        longest_path=_longest(reading, tainted),
        min_cut=figure,
        cut=cut,
    )


def _share(reading: MeasuredTrace, tainted: set[str], kind: CostKind) -> Figure:
    try:
        share = reading.share((event for event in reading.trace.events if event.id in tainted), kind)
    except TraceError as error:
        return not_measured(str(error))
    return Figure(share, None, None, 1)


def _sources_into(reading: MeasuredTrace, tainted: set[str]) -> dict[str, list[str]]:
    """Tainted event -> the tainted events it read."""
    into: dict[str, list[str]] = {}
    for edge in reading.trace.edges:
        carries = edge.type in DATA_EDGES or edge.type in CONTROL_EDGES
        if carries and edge.src in tainted and edge.dst in tainted:
            into.setdefault(edge.dst, []).append(edge.src)
    return into


def _longest(reading: MeasuredTrace, tainted: set[str]) -> int:
    into = _sources_into(reading, tainted)
    length: dict[str, int] = {}
    last: dict[str, str] = {}
    for event in reading.events:
        if event.id in tainted:
            before = [*into.get(event.id, ()), *([last[event.agent]] if event.agent in last else [])]
            length[event.id] = 1 + max((length.get(name, 0) for name in before), default=0)
            last[event.agent] = event.id
    return max(length.values(), default=0)


def _cut(reading: MeasuredTrace, found: Taint, sinks: list[str]) -> tuple[Figure, tuple[str, ...]]:
    open_ = set(found.tainted) - set(found.endorsed)
    sources = [name for name in found.sources if name in open_]
    if not sinks or not sources:
        return Figure(0.0, None, None, 1), ()
    node = {event.id: k for k, event in enumerate(e for e in reading.events if e.id in open_)}
    edges, n = _flow_edges(reading, found, open_, node)
    contexts = range(len(node), n)
    ends = {node[name] for name in sinks if name in node}
    cut = min_vertex_cut(n, edges, {node[name] for name in sources} - ends, ends, contexts)
    if cut is None:
        why = "an agent that read a source made the call itself: only endorsing the source or stopping the call helps"
        return not_measured(why), ()
    names = list(node)
    return Figure(float(len(cut)), None, None, 1), tuple(names[k] for k in sorted(cut))


def _flow_edges(
    reading: MeasuredTrace, found: Taint, open_: set[str], node: dict[str, int]
) -> tuple[list[tuple[int, int]], int]:
    """Ways that taint can take: along edges, and through contexts, which are vertices of their own."""
    into = _sources_into(reading, open_)
    edges: list[tuple[int, int]] = []
    context: dict[str, int] = {}
    n = len(node)
    sources = set(found.sources)
    caller = {e.dst: e.src for e in reading.trace.edges if e.type == "tool_dependency"}
    by_id = {event.id: event for event in reading.events}

    def enters(agent: str, names: list[int]) -> None:
        nonlocal n
        if agent in context:
            names = [*names, context[agent]]
        edges.extend((name, n) for name in names)
        context[agent] = n
        n += 1

    for event in reading.events:
        read = [node[name] for name in into.get(event.id, ())]
        if read:
            enters(event.agent, read)
        if event.id in node:
            me = node[event.id]
            edges.extend((name, me) for name in read)
            if event.agent in context:
                edges.append((context[event.agent], me))
            if event.id in sources:
                asked = by_id.get(caller.get(event.id, ""))
                known = event.agent in reading.lineage
                enters(event.agent if known else event.to or (asked.agent if asked else event.agent), [me])
        if event.to is not None and event.status not in NO_EFFECT:
            if event.type == "spawn":
                context.pop(event.to, None)
            if event.id in node and (event.type == "spawn" or event.decision == "delegate"):
                enters(event.to, [node[event.id]])
    return edges, n
