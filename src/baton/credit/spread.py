"""Standard errors of credits that are one draw each: how far they would move were the rollout drawn again.

A critic or a formula gives one number for a rollout, which says nothing of its own luck; the other rollouts
of the group do. Estimates of the same thing (the same agent, the same turn of the same agent) form a pool,
and the pool's sample deviation is the error of each. It is an upper bound where the pool's members differ for
reasons other than luck. None: alone in its pool, or a pool that came out all alike, which tells nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from baton.credit.baseline import std
from baton.trace.rounding import ROUNDING

__all__ = ["BY_SPREAD", "pooled", "seen"]

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
