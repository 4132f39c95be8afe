"""What forks may cost: a trace's own tokens, what a fork is expected to take, and whom to fork within a budget.

A budget is of two things, tokens and the processor's work, each as many times the trace's own. Work is counted and not
timed, so that credit is the same on every machine: an agent that is run again re-lives its own part from its recording,
so a fork's work is that of the events of all agents that it runs, and a little for those that are copied. What a short
trace takes of a processor is nothing beside a model's answers, so its work counts as if it were a longer one's.

A budget picks with known chances q, so that weighing by 1/q keeps estimates free of bias. For messages of costs c the
chances that make the sum of variances s^2/q least at sum(q c) = budget are in proportion to s / sqrt(c) (Neyman 1934
[M]); s is not known before, so it counts as equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.team.forking import Fork
from baton.team.recording import first_events
from baton.trace.trace import Trace


def own_tokens(trace: Trace) -> int:
    """What running a trace took, counted as forks are: what its calls were charged with."""
    first = first_events(trace)
    return sum(first[call.id].tokens or 0 for call in trace.calls if call.id in first)


_AGAIN = 1.5
"""What an event costs that is run from its recording, beside what it cost to be run."""
_COPIED, _PLANNED = 0.01, 0.03
"""What a fork costs of a run's own work, whoever is run; and what it costs to find out who stands by. All measured."""
_WHOLE = 1.25
"""What it costs to run everybody, whatever else is counted."""
_QUICK = 1000
"""Events of a trace whose work is worth counting: it takes a tenth of a second."""


def work(num_run: float, num_events: int, num_forks: int = 1) -> float:
    """The processor's work of forks of one change, each of which runs so many events again, in runs of the trace."""
    each = num_forks * (_AGAIN * num_run + _COPIED * num_events) + _PLANNED * num_events
    return min(each, _WHOLE * num_forks * num_events) / max(num_events, _QUICK)


def spent(fork: Fork, own: int) -> float:
    """What a fork of a trace of so many tokens took, in runs of it: tokens or work, whichever is more."""
    return max(fork.usage.tokens_run / max(1, own), work(fork.events_run, len(fork.before.events)))


class Cones:
    """What follows from each event: the tokens of the calls that said it, and the events of all whom it reaches."""

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
        names = {name: i for i, name in enumerate(dict.fromkeys(event.agent for event in trace.events))}
        self._who = np.array([names[event.agent] for event in trace.events], dtype=np.int64)
        self._mine = np.bincount(self._who, minlength=len(names)).astype(float)
        parent = {e.to: e.agent for e in trace.events if e.type == "spawn" and e.to is not None}
        self._above = [_above(name, parent, names) for name in names]

    def tokens(self, event: str) -> float:
        """Tokens of the calls that follow from an event."""
        return float(self._follows(event) @ self._weight)

    def events(self, event: str) -> float:
        """Events of all agents that an event reaches, itself among them, and of those above them."""
        place = self._position[event]
        reached = {int(self._who[place]), *np.unique(self._who[self._follows(event)[: len(self._who)] > 0])}
        run = {agent for one in reached for agent in self._above[one]}
        return float(self._mine[sorted(run)].sum())

    def _follows(self, event: str) -> NDArray[np.uint8]:
        bits = self._reached[self._position[event]].to_bytes(len(self._weight) // 8, "little")
        return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")


def _above(name: str, parent: dict[str, str], names: dict[str, int]) -> list[int]:
    """An agent, who spawned it, and so on, by number."""
    found: list[int] = []
    at: str | None = name
    while at in names and names[at] not in found:
        found.append(names[at])
        at = parent.get(at)
    return found


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
