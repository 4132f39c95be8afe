"""How many agents are busy at a time.

An agent is busy while at least one of its events runs, [t, t + duration_s); however many of its
events overlap, it counts once. Events without a duration keep nobody busy. Tools and people are
not agents (see lineage.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from baton.errors import BatonError
from baton.trace.graph.arrays import Graph, within_reason
from baton.trace.graph.lineage import Lineage
from baton.trace.trace import Trace

# The critical path: the chain of events that no amount of parallelism gets below, and its seconds.
#
# Events may overlap: results of tools that ran at once follow each other, and a dependency may come up while an
# event is under way. Of an event, only what lies past the end of what it waited for makes a path longer, so where
# times are right the path is never longer than the wall clock. Everything that tells a span takes it from here.


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
    reach = end.copy()  # until when the path to an event lasted: what it waited for may end after it
    total = [0.0] * graph.n
    before = [-1] * graph.n
    for v in graph.topological_order().tolist():
        own = events[v].duration_s or 0.0
        total[v] = own
        for u in sources[ptr[v] : ptr[v + 1]]:
            through = total[u] + min(own, max(0.0, end[v] - reach[u]))
            # An event that only waited belongs to the path of what it waited for.
            if through > total[v] or (before[v] < 0 and through == total[v]):
                total[v], before[v] = through, u
                reach[v] = max(end[v], reach[u])
    node = max(range(graph.n), key=total.__getitem__)
    length = total[node]
    path = [node]
    while (node := before[node]) >= 0:
        path.append(node)
    return path[::-1], length


class Concurrency:
    """A step function: `counts[k]` agents are busy from `times[k]` until `times[k + 1]`; at the end, 0."""

    def __init__(self, times: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        self.times = times
        self.counts = counts

    @classmethod
    def of(cls, trace: Trace, lineage: Lineage | None = None) -> Self:
        code = {agent: index for index, agent in enumerate((lineage or Lineage.of(trace)).agents)}
        timed = [event for event in trace.events if event.duration_s and event.agent in code]
        start = within_reason(event.t for event in timed)
        end = start + within_reason(event.duration_s for event in timed)
        agent = np.tile(np.array([code[event.agent] for event in timed], np.int32), 2)
        when = np.concatenate((start, end))
        change = np.repeat(np.array([1, -1]), len(timed))
        # By agent, then by time, ends before starts: the running sum is how many events of that agent
        # run, and it is back at zero where the next agent begins.
        order = np.lexsort((change, when, agent))
        when, change = when[order], change[order]
        running = np.cumsum(change)
        turns = ((running == 1) & (change == 1)) | ((running == 0) & (change == -1))
        times, place = np.unique(when[turns], return_inverse=True)
        steps = np.bincount(place, weights=change[turns], minlength=len(times)).astype(np.int64)
        moved = steps != 0
        return cls(times[moved], np.cumsum(steps[moved]))

    @property
    def peak(self) -> int | None:
        """Most agents busy at once; None where no event was timed."""
        return int(self.counts.max()) if len(self.counts) else None

    @cached_property
    def busy_s(self) -> float | None:
        """Agent-seconds: the area under the steps."""
        return float(np.diff(self.times) @ self.counts[:-1]) if len(self.times) else None

    @property
    def mean(self) -> float | None:
        """Busy agents on average between the first start and the last end, idle gaps included."""
        return None if self.busy_s is None else self.busy_s / float(self.times[-1] - self.times[0])
