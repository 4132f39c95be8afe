"""A metric: one number of one trace, listed under the family that measures.md and the survey give it.

A function that is listed takes a `MeasuredTrace` and returns a number, or raises `TraceError` with the reason why
the trace cannot say; called through its `Metric` it gives a `Figure` either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.figure import Figure, not_measured
from baton.measure.measured import MeasuredTrace

Family = Literal["E1", "E2", "E3", "E4", "O5"]
Bounds = tuple[float, float]


class Metric(Struct, frozen=True, kw_only=True):
    """A listed function."""

    name: str
    family: Family
    unit: str
    """What it is counted in; empty for pure numbers."""
    bounds: Bounds
    """What values are possible."""
    of: Callable[[MeasuredTrace], float]

    @property
    def about(self) -> str:
        return (self.of.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, reading: MeasuredTrace) -> Figure:
        try:
            value = float(self.of(reading))
        except TraceError as error:
            return not_measured(str(error))
        return Figure(value, None, None, 1)


METRICS: dict[str, Metric] = {}
"""Every metric by name, in the order of a report; filled when `baton.measure.report.report` is imported."""


def metric(
    name: str, family: Family, *, unit: str = "", bounds: Bounds = (0.0, math.inf)
) -> Callable[[Callable[[MeasuredTrace], float]], Metric]:
    """List a function."""

    def listed(function: Callable[[MeasuredTrace], float]) -> Metric:
        METRICS[name] = Metric(name=name, family=family, unit=unit, bounds=bounds, of=function)
        return METRICS[name]

    return listed
