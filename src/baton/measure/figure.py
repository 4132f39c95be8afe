"""A figure: a number with its interval, or the reason why there is none.

Invariant: `value` is None exactly when `why_not` is set, and None is never zero. Intervals are 95 %:
Wilson's for shares, Student's for means, the delta method for ratios of means, the jackknife for the
rest. A single measurement has a value and no interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeVar

from msgspec import Struct

from baton.errors import TraceError

T = TypeVar("T")
R = TypeVar("R")

_Z = 1.959963984540054
_GROUPS = 50
_T_SMALL = {1: 12.706204736432095, 2: 4.302652729911275}


class Figure(Struct, frozen=True):
    """One number of a report."""

    value: float | None
    low: float | None = None
    """Ends of the 95 % interval; None: too few measurements for one."""
    high: float | None = None
    n: int = 0
    """How many traces, runs or items it rests on."""
    why_not: str | None = None


class NotMeasured(TraceError):
    """The traces cannot say. The message is the reason that a report prints."""


def not_measured(why: str) -> Figure:
    return Figure(None, None, None, 0, why)


def proportion(successes: float, n: int) -> Figure:
    """A share of n, with Wilson's interval (Wilson 1927). `successes` may be an expected count."""
    if n <= 0:
        return not_measured("there is nothing to take a share of")
    p = successes / n
    centre, scale = p + _Z**2 / (2 * n), 1 + _Z**2 / n
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
    # Rounding must not push an end past the share itself.
    return Figure(p, max(0.0, min(p, (centre - half) / scale)), min(1.0, max(p, (centre + half) / scale)), n)


def mean(figures: Iterable[Figure | float], bounds: tuple[float, float] = (-math.inf, math.inf)) -> Figure:
    """The mean of those that were measured, with Student's interval cut to what is possible.

    None of them measured: the reason most of them give.
    """
    values: list[float] = []
    reasons: Counter[str] = Counter()
    for figure in figures:
        if not isinstance(figure, Figure):
            values.append(float(figure))
        elif figure.value is not None:
            values.append(figure.value)
        else:
            reasons[figure.why_not or ""] += 1
    if not values:
        # Sorted first: which of two equally frequent reasons is given must not depend on the order of traces.
        why = max(sorted(reasons), key=lambda reason: reasons[reason], default="there are no traces")
        return not_measured(why)
    n, middle = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Figure(middle, None, None, 1)
    variance = math.fsum((value - middle) ** 2 for value in values) / (n - 1)
    half = student_t(n - 1) * math.sqrt(variance / n)
    return Figure(middle, max(bounds[0], middle - half), min(bounds[1], middle + half), n)


def told(asked: Iterable[T], of: Callable[[T], R]) -> tuple[list[R], Figure]:
    """What can be said of each that is asked; and the reason that most of the others give, for where nothing can."""
    found: list[R] = []
    reasons: list[Figure] = []
    for one in asked:
        try:
            found.append(of(one))
        except TraceError as error:
            reasons.append(not_measured(str(error)))
    return found, mean(reasons)


def ratio(above: Sequence[float], below: Sequence[float]) -> Figure:
    """Mean of one sample over the mean of another, unpaired; delta method."""
    if not above or not below:
        return not_measured("one side of the ratio has no traces")
    top, bottom = math.fsum(above) / len(above), math.fsum(below) / len(below)
    if bottom == 0:
        return not_measured("it is a ratio to something that is zero")
    value = top / bottom
    n = min(len(above), len(below))
    if n < 2:
        return Figure(value, None, None, n)
    spread = _variance(above, top) / len(above) + value**2 * _variance(below, bottom) / len(below)
    half = student_t(n - 1) * math.sqrt(spread) / abs(bottom)
    return Figure(value, value - half, value + half, n)


def jackknife(rows: Sequence[T], statistic: Callable[[Sequence[T]], float | None]) -> Figure:
    """Any statistic of rows, with the jackknife's interval (Tukey 1958). The statistic may say None."""
    value = statistic(rows)
    if value is None:
        return not_measured("the measurements do not determine it")
    n = len(rows)
    # Rows are left out one at a time, or in groups where there are many: the interval is the same at large n.
    groups = min(n, _GROUPS)
    left_out = (
        [statistic([row for i, row in enumerate(rows) if i % groups != k]) for k in range(groups)]
        if n > 2
        else []
    )
    known = [found for found in left_out if found is not None]
    if n < 3 or len(known) < groups:
        return Figure(value, None, None, n)
    centre = math.fsum(known) / groups
    spread = (groups - 1) / groups * math.fsum((found - centre) ** 2 for found in known)
    half = student_t(groups - 1) * math.sqrt(spread)
    return Figure(value, value - half, value + half, n)


@cache
def student_t(degrees: int) -> float:
    """The 97.5 % quantile; within 0.2 % (Abramowitz and Stegun 26.7.5; 1 and 2 are tabled)."""
    if degrees in _T_SMALL:
        return _T_SMALL[degrees]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**k for k, term in enumerate(terms, 1))


def _variance(values: Sequence[float], middle: float) -> float:
    return (
        math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else 0.0
    )
