"""Bernoulli bandits: the Gittins index of a Beta posterior, and the Lai–Robbins bound.

Sources: Gittins 1979 (computed by calibration against a sure arm, as in Gittins, Glazebrook and
Weber 2011, ch. 8); Lai and Robbins 1985.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil, inf, log

from baton.errors import UsageError


@cache
def gittins_index(wins: int, losses: int, discount: float, tolerance: float = 1e-4) -> float:
    """The sure reward per pull at which an arm with Beta(wins, losses) is as good as retiring.

    Pulls so late that they count less than the tolerance are taken at the posterior mean.
    """
    if not 0 < discount < 1:
        raise UsageError(f"the Gittins index needs a discount between 0 and 1; given: {discount}.")
    depth = max(1, ceil(log(tolerance) / log(discount)))
    low, high = wins / (wins + losses), 1.0
    while high - low > tolerance:
        sure = (low + high) / 2
        if _worth_pulling(wins, losses, discount, depth, sure):
            low = sure
        else:
            high = sure
    return (low + high) / 2


def _worth_pulling(wins: int, losses: int, discount: float, depth: int, sure: float) -> bool:
    retire = sure / (1 - discount)
    total = wins + losses + depth
    values = [max(retire, (wins + i) / total / (1 - discount)) for i in range(depth + 1)]
    for pulls in range(depth - 1, -1, -1):
        total = wins + losses + pulls
        for i in range(pulls + 1):
            mean = (wins + i) / total
            go_on = mean * (1 + discount * values[i + 1]) + (1 - mean) * discount * values[i]
            if pulls == 0:
                return go_on > retire
            values[i] = max(retire, go_on)
    raise AssertionError("depth is at least 1")


def kl_bernoulli(p: float, q: float) -> float:
    """KL(p, q) in nats."""
    terms = ((a, b) for a, b in ((p, q), (1 - p, 1 - q)) if a > 0)
    return sum(a * log(a / b) if b > 0 else inf for a, b in terms)


def lai_robbins(means: Sequence[float]) -> float:
    """Least regret per log(pulls) of any consistent policy: sum of gap/KL over the lesser arms."""
    best = max(means)
    return sum((best - p) / kl_bernoulli(p, best) for p in means if p < best)
