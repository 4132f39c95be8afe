"""Baselines and normalisers: from returns to advantages, each with its standard error.

Every error is stated so that value +- 1.96 errors covers 95 %: for few draws it is wider by t / 1.96, t the quantile of
Student's distribution for the draws it rests on. It never looks at the credit's own rollout, which is given; the draws
are the *other* rollouts, and what one rollout gives several times is one draw.

- Of a baseline: how far the advantage of this return would move if the others of its group were drawn again. The scale
  is taken as known. Jackknife over the other rollouts, one degree of freedom fewer than there are of them.
- Of one draw: how far the credit itself would move were its rollout drawn again, from the spread of the others.
None: it was not measured, for there is at most one other, or the others came out all alike.
Sources: Student 1908; the jackknife over clusters, Tukey 1958 and Bell and McCaffrey 2002 [M].
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.credit.estimator import NORMAL_95, t_95, widened
from baton.trace.records import ROUNDING

OF_BASELINE = "error: of the baseline alone, for the return as it was"
BY_SPREAD = "error: the spread over the group, one draw each"
"""What such errors mean, for a credit's `assumes`."""
EPS = 1e-4
"""Added to the scale, as in TRL."""
_NORMAL = NormalDist()
Array = NDArray[np.float64]


class Advantage(NamedTuple):
    """A value and its standard error, None where it cannot be told."""

    value: float
    stderr: float | None


def std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1), as in TRL; exactly 0 where values are alike but for rounding."""
    mean = fmean(values)
    found = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return found if found > ROUNDING * max(map(abs, values)) else 0.0


# Of a baseline.


class Part(NamedTuple):
    """What one rollout brings into a mean: the sum of its entries, and their number."""

    sum: float
    num: int


def parts(entries: Iterable[tuple[Hashable, float]]) -> dict[Hashable, Part]:
    """Rollout -> its part, from (rollout, value)."""
    found: dict[Hashable, Part] = {}
    for rollout, value in entries:
        before = found.get(rollout, Part(0.0, 0))
        found[rollout] = Part(before.sum + value, before.num + 1)
    return found


def baseline_errors(pool: Mapping[Hashable, Part]) -> dict[Hashable, float | None]:
    """Rollout -> the error of the mean over all entries, this rollout's given: by jackknife over the others."""
    count = len(pool) - 1
    if count < 2:
        return dict.fromkeys(pool)
    sums = np.array([part.sum for part in pool.values()], dtype=float)
    nums = np.array([part.num for part in pool.values()], dtype=float)
    level = math.fsum(sums) / nums.sum()
    sums = sums - level * nums  # about the mean, so that differences keep their digits
    large = max(float(np.abs(sums / nums).max()), abs(float(level)))
    if (nums == nums[0]).all():  # as a plain mean has it
        errors = _of_others(sums / nums) / math.sqrt(count) * count / (count + 1)
    else:
        errors = np.array([_jackknife(_without(sums, nums, place)) for place in range(count + 1)])
    wider = t_95(count - 1) / NORMAL_95
    return {
        rollout: error * wider if error > ROUNDING * large else None
        for rollout, error in zip(pool, errors.tolist(), strict=True)
    }


def _without(sums: Array, nums: Array, place: int) -> Array:
    """The mean over all entries with one rollout's given and each of the others left out, about that rollout's own."""
    others = np.arange(len(sums)) != place
    num, left = nums[others].sum(), nums[others].sum() - nums[others]
    means = np.divide(math.fsum(sums[others]) - sums[others], left, out=np.zeros_like(left), where=left > 0)
    found: Array = means * num / nums.sum()
    return found


def _jackknife(without: Array) -> float:
    """The error of an estimate, from what it is without each of its draws."""
    count = len(without)
    return math.sqrt((count - 1) / count * math.fsum((without - math.fsum(without) / count) ** 2))


def joint_error(pools: Iterable[tuple[Mapping[Hashable, Part], float]], rollout: Hashable) -> float | None:
    """Of several baselines that are added, each with its weight: the same rollouts are in them, so they go together.

    The first pool has every rollout; one that is not in another brings nothing into it. Degrees of freedom are those of
    the pool with the fewest others: None where that is one.
    """
    given = list(pools)
    names = list(given[0][0])
    if len(names) < 3:
        return None
    total, fewest = np.zeros(len(names) - 1), len(names) - 1
    for pool, weight in given:
        fewest = min(fewest, len(pool) - 1) if len(pool) > 1 else fewest
        if len(pool) > 1:
            here = [pool.get(name, Part(0.0, 0)) for name in names]
            level = math.fsum(part.sum for part in here) / sum(part.num for part in here)
            sums = np.array([part.sum - level * part.num for part in here])
            nums = np.array([part.num for part in here], dtype=float)
            total += weight * _without(sums, nums, names.index(rollout))
    error = _jackknife(total)
    return widened(error, fewest - 1) if error > ROUNDING * max(1.0, float(np.abs(total).max())) else None


def _of_others(values: Array) -> Array:
    """For each of some values, the sample deviation of the others. Summed exactly: their order does not matter."""
    n = len(values)
    off = values - math.fsum(values) / n
    squares = np.maximum(math.fsum(off**2) - off**2 * n / (n - 1), 0.0)  # about the others' own mean
    rounding = n * (ROUNDING * np.abs(off).max()) ** 2  # what is left of others that are alike
    found: Array = np.sqrt(np.where(squares > rounding, squares, 0.0) / (n - 2))
    return found


def centred(values: Sequence[float]) -> list[Advantage]:
    """x - mean = (n-1)/n (x - mean of the others), whose error for x as it was is (n-1)/n sigma/sqrt(n-1)."""
    mean = fmean(values)
    if len(values) == 1 or std(values) == 0.0:  # what the mean is off by is no advantage
        return [Advantage(0.0, None) for _ in values]
    errors = baseline_errors({place: Part(value, 1) for place, value in enumerate(values)})
    return [Advantage(value - mean, errors[place]) for place, value in enumerate(values)]


def normalised(values: Sequence[float], eps: float = EPS) -> list[Advantage]:
    """(x - mean) / (std + eps). A singleton gives 0."""
    if len(values) == 1 or std(values) == 0.0:
        return [Advantage(0.0, None) for _ in values]
    return [_scaled(advantage, 1 / (std(values) + eps)) for advantage in centred(values)]


def left_out(values: Sequence[float]) -> list[Advantage]:
    """x - mean of the others: n/(n-1) times the centred value. Its error for x as it was is sigma/sqrt(n-1)."""
    return [_scaled(advantage, len(values) / (len(values) - 1)) for advantage in centred(values)]


def _scaled(advantage: Advantage, factor: float) -> Advantage:
    value, error = advantage
    return Advantage(value * factor, None if error is None else error * factor)


def normal_ranks(values: Sequence[float]) -> list[Advantage]:
    """Phi^-1((rank - 1/2)/n), equals sharing their mean rank.

    Error for Phi^-1(F(x)), F the share of returns below x: that share is Beta(rank, n + 1 - rank) whatever returns are
    like, so the interval is exact for one without equals. Among equals: how far their share would move, by the delta
    method.
    """
    n = len(values)
    order = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(order, 1)))}
    last = {value: place for place, value in enumerate(order, 1)}
    known: dict[float, Advantage] = {}
    for place, value in enumerate(values):
        if value in known:
            continue
        score = _NORMAL.inv_cdf(((first[value] + last[value]) / 2 - 0.5) / n)
        if first[value] == last[value] and n <= _MANY:
            error = _rank_error(first[value], n, score) if n > 1 else None
        else:
            below = parts((k, (x < value) + 0.5 * (x == value)) for k, x in enumerate(values))
            error = baseline_errors(below)[place]
            error = None if error is None else error / _NORMAL.pdf(score)
        known[value] = Advantage(score, error)
    return [known[value] for value in values]


_MANY = 64
"""Of more ranks than this a share is normal enough."""


def _rank_error(rank: int, n: int, score: float) -> float:
    """Half the width, over 1.96, that holds 95 % of Phi^-1 of a Beta(rank, n + 1 - rank) about the score."""

    def below(x: float) -> float:  # a Beta's distribution is a binomial's tail
        p = _NORMAL.cdf(x)
        return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(rank, n + 1))

    low, high = 0.0, 40.0
    for _ in range(50):
        half = (low + high) / 2
        low, high = (low, half) if below(score + half) - below(score - half) > 0.95 else (half, high)
    return high / NORMAL_95


def running_error(baseline: float, values: Sequence[float]) -> float | None:
    """Of a baseline that is no mean of these returns: how far it may be from the mean that they are draws of.

    With d the distance from their own mean and e the error of that, d + e z is where the baseline may stand; this is
    the half width that holds 95 % of it, over 1.96.
    """
    error = widened(seen(values), len(values) - 1)
    if error is None:
        return None
    off, spread = abs(baseline - fmean(values)), error / math.sqrt(len(values))
    low, high = 0.0, off + 3 * spread
    for _ in range(50):
        half = (low + high) / 2
        inside = _NORMAL.cdf((half - off) / spread) - _NORMAL.cdf((-half - off) / spread)
        low, high = (low, half) if inside > 0.95 else (half, high)
    return high / NORMAL_95


# Of one draw.
#
# A critic or a formula gives one number for a rollout, which says nothing of its own luck; the other rollouts of the
# group do. Estimates of the same thing (the same agent, the same turn of the same agent) form a pool, and the spread of
# the others in it is the error of each. It is an upper bound where the pool's members differ for reasons other than
# luck, and normal theory: of draws that are 0 or 1, the share that it covers is that of the coin.


def seen(values: Sequence[float]) -> float | None:
    """The sample deviation of some draws, or None where they do not show one."""
    if len(values) < 2:
        return None
    found = std(values)
    return found if found > ROUNDING * max(1.0, *map(abs, values)) else None


def one_draw(others: Sequence[float]) -> float | None:
    """The error of one draw, from others of its kind."""
    return widened(seen(others), len(others) - 1)


def pooled(draws: Iterable[tuple[Hashable, float]]) -> list[float | None]:
    """For each (pool, value), one of each rollout, the error of that one draw: from the others of its pool."""
    given = list(draws)
    pools: dict[Hashable, list[int]] = {}
    for place, (pool, _) in enumerate(given):
        pools.setdefault(pool, []).append(place)
    found: list[float | None] = [None] * len(given)
    for places in pools.values():
        n = len(places)
        if n < 3:
            continue
        values = np.array([given[place][1] for place in places], dtype=float)
        least = ROUNDING * max(1.0, float(np.abs(values).max()))
        for place, error in zip(places, _of_others(values).tolist(), strict=True):
            found[place] = widened(error, n - 2) if error > least else None
    return found
