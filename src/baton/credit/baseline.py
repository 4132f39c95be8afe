"""Baselines and normalisers: from returns to advantages, each with its standard error.

The error is that of the baseline: how far the advantage of a fixed return would move if the others
of its group were drawn again. The scale is taken as known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

from baton.trace.rounding import ROUNDING

__all__ = ["EPS", "OF_BASELINE", "Advantage", "centred", "left_out", "normal_ranks", "normalised", "std"]

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
