"""How many agents are busy at a time.

An agent is busy while at least one of its events runs, [t, t + duration_s); however many of its
events overlap, it counts once. Events without a duration keep nobody busy. Tools and people are
not agents (see forest.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from baton.trace.forest import Forest
from baton.trace.trace import Trace

__all__ = ["Concurrency"]


class Concurrency:
    """A step function: `counts[k]` agents are busy from `times[k]` until `times[k + 1]`; at the end, 0."""

    def __init__(self, times: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        self.times = times
        self.counts = counts

    @classmethod
    def of(cls, trace: Trace, forest: Forest | None = None) -> Self:
        code = {agent: index for index, agent in enumerate((forest or Forest.of(trace)).agents)}
        timed = [event for event in trace.events if event.duration_s and event.agent in code]
        start = np.array([event.t for event in timed], np.float64)
        end = start + np.array([event.duration_s for event in timed], np.float64)
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
