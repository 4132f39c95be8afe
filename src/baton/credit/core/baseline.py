"""Baselines and normalisers: from returns to advantages, each with its standard error.

The error is that of the baseline: how far the advantage of a fixed return would move if the others
of its group were drawn again. The scale is taken as known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

from baton.trace.records import ROUNDING

OF_BASELINE = "error: of the baseline alone, for the return as it was"
"""What such an error means, for a credit's `assumes`."""
EPS = 1e-4
"""Added to the scale, as in TRL."""
_NORMAL = NormalDist()


class Advantage(NamedTuple):
    """A value and its standard error, None where it cannot be told."""

    value: float
    stderr: float | None


def std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), as in TRL; exactly 0 where values are alike but for rounding."""
    mean = fmean(values)
    found = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return found if found > ROUNDING * max(map(abs, values)) else 0.0


def centred(values: Sequence[float]) -> list[Advantage]:
    """x - mean. Var given x: (n-1)/n^2 sigma^2, since the mean holds x itself. A singleton gives 0."""
    n = len(values)
    if n == 1:
        return [Advantage(0.0, None)]
    mean = fmean(values)
    error = std(values) * math.sqrt(n - 1) / n
    if error == 0.0:  # what the mean is off by is no advantage
        return [Advantage(0.0, 0.0) for _ in values]
    return [Advantage(value - mean, error) for value in values]


def normalised(values: Sequence[float], eps: float = EPS) -> list[Advantage]:
    """(x - mean) / (std + eps). A singleton gives 0."""
    if len(values) == 1:
        return [Advantage(0.0, None)]
    scale = std(values) + eps
    if scale == 0.0:  # eps = 0 and all alike
        return [Advantage(0.0, 0.0) for _ in values]
    return [
        Advantage(value / scale, None if error is None else error / scale) for value, error in centred(values)
    ]


def left_out(values: Sequence[float]) -> list[Advantage]:
    """x - mean of the others: n/(n-1) times the centred value. Var given x: sigma^2/(n-1)."""
    n = len(values)
    factor = n / (n - 1)
    return [
        Advantage(value * factor, None if error is None else error * factor)
        for value, error in centred(values)
    ]


def normal_ranks(values: Sequence[float]) -> list[Advantage]:
    """Phi^-1((rank - 1/2)/n), equals sharing their mean rank. Error by the delta method on the empirical CDF."""
    n = len(values)
    order = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(order, 1)))}
    last = {value: place for place, value in enumerate(order, 1)}
    found = []
    for value in values:
        share = ((first[value] + last[value]) / 2 - 0.5) / n
        score = _NORMAL.inv_cdf(share)
        found.append(Advantage(score, math.sqrt(share * (1 - share) / n) / _NORMAL.pdf(score)))
    return found


# Standard errors of credits that are one draw each: how far they would move were the rollout drawn again.
#
# A critic or a formula gives one number for a rollout, which says nothing of its own luck; the other rollouts
# of the group do. Estimates of the same thing (the same agent, the same turn of the same agent) form a pool,
# and the pool's sample deviation is the error of each. It is an upper bound where the pool's members differ for
# reasons other than luck. None: alone in its pool, or a pool that came out all alike, which tells nothing.

BY_SPREAD = "error: the spread over the group, one draw each"
"""What such an error means, for a credit's `assumes`."""


def seen(values: Sequence[float]) -> float | None:
    """The sample deviation of some draws, or None where they do not show one."""
    if len(values) < 2:
        return None
    found = std(values)
    return found if found > ROUNDING * max(1.0, *map(abs, values)) else None


def pooled(draws: Iterable[tuple[Hashable, float]]) -> Mapping[Hashable, float | None]:
    """Pool -> the deviation of its draws."""
    pools: dict[Hashable, list[float]] = {}
    for pool, value in draws:
        pools.setdefault(pool, []).append(value)
    return {pool: seen(values) for pool, values in pools.items()}
