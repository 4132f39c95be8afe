"""The critical path: the chain of events that no amount of parallelism gets below, and its seconds.

Events may overlap: results of tools that ran at once follow each other, and a dependency may come up while an
event is under way. Of an event, only what lies past the end of what it waited for makes a path longer, so where
times are right the path is never longer than the wall clock. Everything that tells a span takes it from here.
"""

from __future__ import annotations

from baton.errors import BatonError
from baton.trace.graph import Graph
from baton.trace.trace import Trace

__all__ = ["critical_path", "span_seconds"]


def span_seconds(trace: Trace) -> float | None:
    """The length of the critical path; None where nothing was timed, or the trace has no graph."""
    try:
        found = critical_path(Graph.of(trace))
    except BatonError:
        return None
    return None if found is None else found[1]


def critical_path(graph: Graph) -> tuple[list[int], float] | None:
    """Events by row in causal order, and seconds; None where no event was timed. Raises on a cycle."""
    events = graph.trace.events
    if graph.span is None:
        return None
    if len({event.t for event in events}) < 2:  # no clock to speak of: the path is all there is
        found = graph.critical_path()
        return found.path.tolist(), found.length
    ptr, sources = graph.into.ptr.tolist(), graph.into.node.tolist()
    end = [event.t + (event.duration_s or 0.0) for event in events]
    total = [0.0] * graph.n
    before = [-1] * graph.n
    for v in graph.topological_order().tolist():
        own = events[v].duration_s or 0.0
        total[v] = own
        for u in sources[ptr[v] : ptr[v + 1]]:
            through = total[u] + min(own, max(0.0, end[v] - end[u]))
            # An event that only waited belongs to the path of what it waited for.
            if through > total[v] or (before[v] < 0 and through == total[v]):
                total[v], before[v] = through, u
    node = max(range(graph.n), key=total.__getitem__)
    length = total[node]
    path = [node]
    while (node := before[node]) >= 0:
        path.append(node)
    return path[::-1], length
