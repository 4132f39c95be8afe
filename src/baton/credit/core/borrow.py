"""The value of a prefix, borrowed from other rollouts that are like it.

Returns are regressed on likeness (`baton.credit.core.likeness`), anew for every prefix:

    R_j = level + f_j + noise,   f ~ N(0, s^2 eta K),   noise ~ N(0, s^2)

with K the likeness of the rollouts cut at that prefix, a flat prior on the level, the scale s integrated out and eta,
how much of a return likeness tells, averaged over a grid by its evidence; eta = 0 is among them. V_{-i} is the
prediction for rollout i from the others: level, scale, evidence and all are theirs alone, so V_{-i} is the same
whatever R_i is. Where rollouts have nothing in common, or nothing that tells, it is the mean of the others' returns.
Sources: best linear unbiased prediction with leave-one-out residuals, textbook [M]; over traces [I].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.credit.core.likeness import Array, Likeness, Place
from baton.credit.estimator import CreditError, Group, Prefix, RewardOf, Value, returns
from baton.trace.outcome import team_return
from baton.trace.records import ROUNDING

_ETAS = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0)
"""How much more of a return likeness tells than luck does; each as likely at first."""
_NUMBERS = 4_000_000
"""Numbers in one batch of matrices."""
Bools = NDArray[np.bool_]
_MOST = 64
"""Rollouts that are regressed together; of a larger group, blocks of whole instances as far as they go."""
Cut = int
"""Where all rollouts are cut, after so many events of each agent: the sum of the hashes of the places before it."""


class Borrowed(NamedTuple):
    """What the other rollouts say of the prefixes of each: one number for each prefix, the empty one first."""

    values: list[Array]
    """V_{-i}."""
    variances: list[Array]
    """How far V_{-i} may be off, squared; NaN where nobody can tell."""
    spreads: list[Array]
    """How far returns lie about the values of such prefixes, squared, by what the others show."""
    known: list[Bools]
    """Whether another rollout is like this one up to there, in something that not all have in common."""


def borrowed(group: Group, totals: Sequence[float]) -> Borrowed:
    """V_{-i} of every prefix of every rollout of a group."""
    sizes = [len(trace.events) + 1 for trace in group]
    found = Borrowed(
        values=[np.zeros(size) for size in sizes],
        variances=[np.zeros(size) for size in sizes],
        spreads=[np.zeros(size) for size in sizes],
        known=[np.zeros(size, dtype=bool) for size in sizes],
    )
    order = sorted(range(len(group)), key=lambda place: group[place].header.task_id)
    for block in np.array_split(order, -(-len(group) // _MOST)):
        _borrow(Likeness([group[place] for place in block]), totals, block.tolist(), found)
    return found


def _borrow(likeness: Likeness, totals: Sequence[float], block: Sequence[int], found: Borrowed) -> None:
    """Write down what the rollouts of a block say of each other."""
    y = np.array([totals[place] for place in block], dtype=float)
    prefixes: dict[Cut, list[tuple[int, int]]] = {}
    for rollout, path in enumerate(likeness.paths):
        for num_events, cut in enumerate(_cuts(path)):
            prefixes.setdefault(cut, []).append((rollout, num_events))
    kernels = _kernels(likeness)
    while batch := list(islice(kernels, max(1, _NUMBERS // len(y) ** 2))):
        kernel_KNN = np.stack([kernel for _, kernel in batch])
        values, variances, spreads = _predicted(kernel_KNN, y)
        like: Bools = (kernel_KNN * ~np.eye(len(y), dtype=bool) > 0).sum(axis=2) > 0
        for number, (cut, _) in enumerate(batch):
            for rollout, num_events in prefixes[cut]:
                place = block[rollout]
                found.values[place][num_events] = values[number, rollout]
                found.variances[place][num_events] = variances[number, rollout]
                found.spreads[place][num_events] = spreads[number, rollout]
                found.known[place][num_events] = like[number, rollout]


def _cuts(path: Sequence[Place]) -> Iterator[Cut]:
    """Of every prefix of a rollout, from its places."""
    return accumulate(map(hash, path), initial=0)


def _kernels(likeness: Likeness) -> Iterator[tuple[Cut, Array]]:
    """Each cut once, with how alike the rollouts are up to there."""
    done: set[Cut] = set()
    for path in likeness.paths:
        kernel = likeness.start
        for num_events, cut in enumerate(_cuts(path)):
            if num_events:
                kernel = kernel + likeness.at(path[num_events - 1]) + likeness.begun_alike(num_events)
            if cut not in done:
                done.add(cut)
                yield cut, kernel


def _predicted(kernel_KNN: Array, y: Array) -> tuple[Array, Array, Array]:
    """V_{-i}, its variance and the spread of returns about it, for each kernel and rollout."""
    n = len(y)
    about = y - y.mean()
    shape = (len(kernel_KNN), n)
    values = np.broadcast_to(y.mean() - about / (n - 1), shape).copy()
    if n < 3:
        return values, np.full(shape, np.nan), np.full(shape, np.nan)
    spread = np.maximum(about @ about - about**2 * n / (n - 1), 0.0) / (n - 2)
    spreads = np.broadcast_to(spread, shape).copy()
    variances = spreads / (n - 1)
    # What all have in common moves the level and nothing else, so likeness is measured against its mean.
    size = np.trace(kernel_KNN - kernel_KNN.mean(axis=1, keepdims=True), axis1=1, axis2=2) / (n - 1)
    there = size > ROUNDING
    if there.any() and np.ptp(y) > ROUNDING * np.abs(y).max():
        scaled = kernel_KNN[there] / size[there, None, None]
        values[there], variances[there], spreads[there] = _averaged(scaled, y)
    return values, variances, spreads


def _averaged(kernel_KNN: Array, y: Array) -> tuple[Array, Array, Array]:
    """Predictions, their variances and spreads, averaged over how much likeness tells.

    With D = I + eta K and Q = D^-1 - D^-1 1 1' D^-1 / (1' D^-1 1), the prediction of y_i by the others is
    y_i - (Qy)_i / Q_ii and its variance s^2 / Q_ii. By the minors of the bordered matrix ((D, 1), (1', 0)), the others'
    restricted evidence is that of all with log Q_ii added to the log determinant and (Qy)_i^2 / Q_ii taken from y'Qy.
    """
    n, centre = len(y), y.mean()
    y = y - centre  # the level is free, so this changes nothing but rounding
    spectrum, basis = np.linalg.eigh(kernel_KNN)
    spectrum = np.maximum(spectrum, 0.0)
    ones, seen = basis.sum(axis=1), np.einsum("kij,i->kj", basis, y)
    by_eta = []
    for eta in _ETAS:
        weight = 1 / (1 + eta * spectrum)
        total = (ones * weight * ones).sum(axis=1, keepdims=True)
        level = (ones * weight * seen).sum(axis=1, keepdims=True) / total
        row = np.einsum("kij,kj->ki", basis, weight * ones)
        rest = np.einsum("kij,kj->ki", basis, weight * (seen - level * ones))  # Qy
        diagonal = np.einsum("kij,kj->ki", basis**2, weight) - row**2 / total
        left = (y * rest).sum(axis=1, keepdims=True) - rest**2 / diagonal
        left = np.maximum(left, ROUNDING * (y @ y))
        determinant = np.log(total) + np.log(diagonal) - np.log(weight).sum(axis=1, keepdims=True)
        evidence = -determinant / 2 - (n - 2) / 2 * np.log(left)
        scale = left / (n - 2)
        by_eta.append((y - rest / diagonal, scale * np.maximum(1 / diagonal - 1, 0.0), scale, evidence))
    means, variances, scales, logs = map(np.stack, zip(*by_eta, strict=True))
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    mean = (weights * means).sum(axis=0)
    variance = (weights * (variances + (means - mean) ** 2)).sum(axis=0)
    return mean + centre, variance, (weights * scales).sum(axis=0)


def group_value(group: Group, reward: RewardOf = team_return) -> Value:
    """A critic made of the group alone that never looks at the rollout it is asked about: V_{-i} of a prefix."""
    totals = returns(group, reward, at_least=2, what="a value borrowed from other rollouts")
    found = borrowed(group, totals).values
    place = {id(trace): number for number, trace in enumerate(group)}

    def value(prefix: Prefix) -> float:
        rollout = place.get(id(prefix.trace))
        if rollout is None:
            raise CreditError(f"trace {prefix.trace.trace_id} is not of the group this value was made from.")
        return float(found[rollout][prefix.num_events])

    return value
