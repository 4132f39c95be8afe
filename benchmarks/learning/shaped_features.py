"""Prefixes of shaped teams as numbers for linear critics, by hand, and the ridge regression that reads them.

plain   what a linear prefix has: how many events of each kind so far, as counts and as shares of the workers, and how
        far the work has come
graph   the same, and what one who knows the graph would count: of the workers and of those who put together, by what
        they do, how deep they stand and what stands above them, the share that is open, careful, quick, right and
        wrong, once as a share of the workers and once by how much each bears on the lead, a product of 1/branching
        on the way up; and of every agent the share below it that came out right and wrong, with its squares, weighed
        likewise

Both are asked about prefixes that have the plan, as the shape's totals are counted over all who were spawned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.trace.trace import Trace

Array = NDArray[np.float64]
_STATES = ("open", "careful", "quick", "right", "wrong")
_WORKERS = ("junior", "senior")
_INNER = ("all", "chain", "any", "vote")
_ABOVE = ("lead", *_INNER)
_DEEP = 3
"""Depths that are told apart; what is deeper counts with the last."""
_NUM_WORK = len(_WORKERS) * len(_ABOVE) * _DEEP * len(_STATES)
_NUM_INNER = len(_INNER) * _DEEP * 7


class Place(NamedTuple):
    """An agent of the plan."""

    parent: str
    role: str
    depth: int
    weight: float
    """By how much it bears on the lead."""


def places(trace: Trace) -> dict[str, Place]:
    """All who were spawned."""
    spawns = [event for event in trace.events if event.type == "spawn"]
    width: dict[str, int] = {}
    for event in spawns:
        width[event.agent] = width.get(event.agent, 0) + 1
    found = {spawns[0].agent: Place("", "lead", 0, 1.0)} if spawns else {}
    for event in spawns:
        up = found[event.agent]
        found[str(event.to)] = Place(
            event.agent, event.role or "", up.depth + 1, up.weight / width[event.agent]
        )
    return found


def plain(trace: Trace) -> Array:
    """Prefixes x features."""
    kinds = ("spawn", "tool_call 0", "tool_call 1", "tool_result ok", "tool_result failed", "aggregate")
    names = (*kinds, "return ok", "return failed", "orchestrator_decision")
    num_workers = sum(event.type == "spawn" and event.role in _WORKERS for event in trace.events)
    found = np.zeros((len(trace.events) + 1, len(names)))
    for number, event in enumerate(trace.events, 1):
        told = {"tool_call": event.choice, "tool_result": event.status, "return": event.status}.get(
            event.type, ""
        )
        found[number, names.index(f"{event.type} {told}".strip())] = 1
    counts = found.cumsum(0)
    share = counts / max(1, num_workers)
    ones = np.ones((len(counts), 1))
    sizes = ones * [1.0, 1 / max(1, num_workers), np.log(max(1, num_workers))]
    position = counts.sum(1, keepdims=True) / max(1, 3 * num_workers)
    return np.concatenate([sizes, counts / 100, share, position, position**2], 1)


def graph(trace: Trace) -> Array:
    """The plain features, and those of the graph."""
    board = _Board(places(trace))
    rows = [board.row()]
    for event in trace.events:
        if event.type == "tool_call":
            board.worker(event.agent, "careful" if event.choice == 0 else "quick")
        elif event.type == "tool_result":
            board.worker(event.agent, "right" if event.status == "ok" else "wrong")
        if event.type == "return":
            board.returned(event.agent, event.status == "ok")
        rows.append(board.row())
    return np.concatenate([plain(trace), np.stack(rows)], 1)


class _Board:
    """Sums over agents, changed by what each event changes."""

    def __init__(self, found: dict[str, Place]) -> None:
        self.places = found
        self.num_workers = max(1, sum(place.role in _WORKERS for place in found.values()))
        self.shares, self.weighed = np.zeros(_NUM_WORK), np.zeros(_NUM_WORK)
        self.inner = np.zeros(_NUM_INNER)
        self.state: dict[str, str] = {}
        self.below: dict[str, list[float]] = {}
        self.width: dict[str, int] = {}
        for name, place in found.items():
            self.width[place.parent] = self.width.get(place.parent, 0) + 1
            if place.role in _WORKERS:
                self.worker(name, "open")
        for name, place in found.items():
            if place.role in _INNER:
                self.below[name] = [0.0, 0.0]
                self._inner(name, 1.0)

    def row(self) -> Array:
        return np.concatenate([self.shares, self.weighed, self.inner])

    def worker(self, name: str, state: str) -> None:
        """Moves a worker from one state to the next."""
        place = self.places[name]
        for each, sign in ((self.state.get(name), -1.0), (state, 1.0)):
            if each is not None:
                at = _WORKERS.index(place.role) * len(_ABOVE)
                at = (at + _ABOVE.index(self.places[place.parent].role)) * _DEEP + min(place.depth, _DEEP) - 1
                at = at * len(_STATES) + _STATES.index(each)
                self.shares[at] += sign / self.num_workers
                self.weighed[at] += sign * place.weight
        self.state[name] = state

    def returned(self, name: str, well: bool) -> None:
        above = self.places[name].parent
        if above in self.below:
            self._inner(above, -1.0)
            self.below[above][0 if well else 1] += 1 / self.width[above]
            self._inner(above, 1.0)

    def _inner(self, name: str, sign: float) -> None:
        place, (well, badly) = self.places[name], self.below[name]
        at = (_INNER.index(place.role) * _DEEP + min(place.depth, _DEEP) - 1) * 7
        told = [1.0, well, badly, well**2, badly**2, float(well > 0), float(badly > 0)]
        self.inner[at : at + 7] += sign * place.weight * np.array(told)


class Ridge:
    """A linear critic: least squares with a penalty on standardised features, each trace counting once."""

    def __init__(self, width: int, penalty: float) -> None:
        self.penalty = penalty
        self.mean, self.scale = np.zeros(width), np.ones(width)
        self.weights, self.level = np.zeros(width), 0.0

    def fit(self, prefixes: Sequence[Array], totals: Sequence[float]) -> None:
        weight = np.concatenate([np.full(len(each), 1 / len(each)) for each in prefixes])[:, None]
        x, y = np.concatenate(prefixes), np.repeat(totals, [len(each) for each in prefixes])
        self.mean = (weight * x).sum(0) / weight.sum()
        spread = np.sqrt((weight * (x - self.mean) ** 2).sum(0) / weight.sum())
        self.scale = np.where(spread > 1e-9, spread, 1.0)
        z = np.where(spread > 1e-9, (x - self.mean) / self.scale, 0.0)
        self.level = float((weight[:, 0] * y).sum() / weight.sum())
        left = z.T @ (weight * z) / weight.sum() + self.penalty * np.eye(z.shape[1])
        self.weights = np.linalg.solve(left, z.T @ (weight[:, 0] * (y - self.level)) / weight.sum())

    def values(self, prefixes: Array) -> Array:
        found: Array = self.level + ((prefixes - self.mean) / self.scale) @ self.weights
        return found
