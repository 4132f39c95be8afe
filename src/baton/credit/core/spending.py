"""What forks may cost: a trace's own tokens, what a fork is expected to take, and whom to fork within a budget.

A budget picks with known chances q, so that weighing by 1/q keeps estimates free of bias. For messages of costs c the
chances that make the sum of variances s^2/q least at sum(q c) = budget are in proportion to s / sqrt(c) (Neyman 1934
[M]); s is not known before, so it counts as equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.team.recording import first_events
from baton.trace.records import Call
from baton.trace.trace import Trace


def call_tokens(trace: Trace, call: Call) -> int:
    """What a call was charged with, and is again when it is asked again."""
    event = first_events(trace).get(call.id)
    return 0 if event is None else event.tokens or 0


def own_tokens(trace: Trace) -> int:
    """What running a trace took, counted as forks are."""
    return sum(call_tokens(trace, call) for call in trace.calls)


class Cones:
    """What follows from each event, in tokens of the calls that said it."""

    def __init__(self, trace: Trace) -> None:
        self._position = trace.position
        n = len(trace.events)
        after: list[list[int]] = [[] for _ in range(n)]
        for edge in trace.edges:
            after[trace.position[edge.src]].append(trace.position[edge.dst])
        # Causes come before effects, so one pass from the end sees all that follows, as bits.
        self._reached = [0] * n
        for i in range(n - 1, -1, -1):
            bits = 0
            for j in after[i]:
                bits |= self._reached[j] | 1 << j
            self._reached[i] = bits
        self._weight: NDArray[np.float64] = np.zeros(8 * (n // 8 + 1))
        for event in first_events(trace).values():
            self._weight[trace.position[event.id]] = event.tokens or 0

    def tokens(self, event: str) -> float:
        """Tokens of the calls that follow from an event."""
        bits = self._reached[self._position[event]].to_bytes(len(self._weight) // 8, "little")
        return float(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little") @ self._weight)


def chances(costs: Sequence[float], budget: float, most: float = 1.0) -> list[float]:
    """Chances to pick things of these costs that spend a budget in expectation, none above `most`."""
    cost = np.maximum(np.asarray(costs, dtype=float), 1e-9)
    if float(most * cost.sum()) <= budget:
        return [most] * len(costs)
    low, high = 0.0, most * float(np.sqrt(cost).max())
    for _ in range(100):
        middle = (low + high) / 2
        spent = float((np.minimum(most, middle / np.sqrt(cost)) * cost).sum())
        low, high = (middle, high) if spent <= budget else (low, middle)
    return [float(q) for q in np.minimum(most, low / np.sqrt(cost))]


def picked(q: ArrayLike, start: float) -> list[bool]:
    """A systematic sample, from a `start` in [0, 1): each has its chance, their number differs by less than one."""
    upto = np.cumsum(np.asarray(q, dtype=float)) + start
    before = np.concatenate([[start], upto[:-1]])
    return [math.floor(a) > math.floor(b) for a, b in zip(upto.tolist(), before.tolist(), strict=True)]
