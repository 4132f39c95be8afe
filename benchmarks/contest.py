"""Contenders in turns, each figure the median of its runs, and the rows that come of it.

Processor time, garbage collector on, as it is for a user, but what was there before a run is frozen: each
contender pays for its own objects only. What a run returns is freed after the clock stopped.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from table import row

__all__ = ["Bench", "cpu", "growth", "ready", "shown"]


class Bench:
    """Collects rows for one size."""

    def __init__(self, num_events: int, runs: int, where: str) -> None:
        self.num_events = num_events
        self.runs = runs
        self.where = where
        self.rows: list[tuple[str, ...]] = []
        self.seconds: dict[str, float] = {}
        """For growth: what was measured -> Baton's time for the whole trace."""

    def add(self, what: str, ours: float, against: str, theirs: float, *, grows: bool = True) -> None:
        if grows:
            self.seconds[what] = ours
        self.rows.append(
            row(self._sized(what), shown(ours), against, shown(theirs), theirs / ours, self.where)
        )

    def add_rate(self, what: str, ours: float, against: str, theirs: float) -> None:
        self.seconds[what] = ours
        rates = [f"{self.num_events / seconds:,.0f} events/s" for seconds in (ours, theirs)]
        self.rows.append(row(self._sized(what), rates[0], against, rates[1], theirs / ours, self.where))

    def add_bytes(self, what: str, ours: int, against: str, theirs: int) -> None:
        each = [f"{size / self.num_events:,.0f} B/event" for size in (ours, theirs)]
        self.rows.append(row(self._sized(what), each[0], against, each[1], theirs / ours, self.where))

    def _sized(self, what: str) -> str:
        return f"{self.num_events:,} events: {what}"


def cpu(runs: int, *contenders: Callable[[], Any]) -> list[float]:
    """Median processor seconds of each. A contender may return its run: what it did before is not timed."""
    taken: list[list[float]] = [[] for _ in contenders]
    for _ in range(runs):
        for times, contender in zip(taken, contenders, strict=True):
            gc.collect()
            gc.freeze()
            run = contender()
            start = time.process_time()
            result = run()
            times.append(time.process_time() - start)
            del result, run
            gc.unfreeze()
    return [median(times) for times in taken]


def ready(run: Callable[[], Any]) -> Callable[[], Callable[[], Any]]:
    """A contender with nothing to prepare."""
    return lambda: run


def growth(benches: list[Bench]) -> list[tuple[str, ...]]:
    """Time per event at the largest size and at the smallest; 1 is linear, below 1 is worse."""
    small, large = benches[0], benches[-1]
    found = []
    for what in small.seconds.keys() & large.seconds.keys() if small is not large else ():
        each = [bench.seconds[what] / bench.num_events * 1e6 for bench in (large, small)]
        found.append((list(small.seconds).index(what), what, each))
    return [
        row(
            f"growth to {large.num_events:,} events: {what}",
            f"{each[0]:.3g} µs/event",
            f"itself at {small.num_events:,}",
            f"{each[1]:.3g} µs/event",
            each[1] / each[0],
            large.where,
        )
        for _, what, each in sorted(found)
    ]


def shown(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
