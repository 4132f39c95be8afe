"""A metric: one number of one trace, listed under the family that the survey gives it.

The function takes a `MeasuredTrace` and returns a number, or raises `TraceError` with the reason why the trace cannot
say; called through its `Metric` it gives a `Figure` either way. One of your own is a function, or a `Metric` of family
"own" where it has a unit, bounds or a paper to name:

    @metric("messages_per_agent", "own", source="arXiv ...")
    def messages_per_agent(measured: MeasuredTrace) -> float: ...

    baton measure runs/sum --metric my_package:messages_per_agent
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from baton import registry
from baton.errors import TraceError, UsageError
from baton.measure.figure import Figure, not_measured
from baton.measure.measured import MeasuredTrace

Family = Literal["E1", "E2", "E3", "E4", "O5", "own"]
Bounds = tuple[float, float]


class Metric(Struct, frozen=True, kw_only=True):
    """A number that every trace has, or says why not."""

    name: str
    family: Family
    """Of the survey; "own" for those of other packages."""
    unit: str = ""
    """What it is counted in; empty for pure numbers."""
    bounds: Bounds = (-math.inf, math.inf)
    """What values are possible."""
    of: Callable[[MeasuredTrace], float]
    source: str = ""
    """The paper, where it is not the survey."""

    @property
    def formula(self) -> str:
        """The first line of its function's docstring, which says what it computes."""
        return (self.of.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, measured: MeasuredTrace) -> Figure:
        """The figure of one trace; one that cannot be measured has the reason in it."""
        try:
            value = float(self.of(measured))
        except TraceError as error:
            return not_measured(str(error))
        return Figure(value, None, None, 1)


METRICS: dict[str, Metric] = {}
"""What Baton ships, in the order of a report; filled when `baton.measure.metrics` is imported."""


def metric(
    name: str, family: Family, *, unit: str = "", bounds: Bounds | None = None, source: str = ""
) -> Callable[[Callable[[MeasuredTrace], float]], Metric]:
    """Make a metric of a function; those of the survey's families are listed for the report."""

    def made(function: Callable[[MeasuredTrace], float]) -> Metric:
        least = -math.inf if family == "own" else 0.0
        found = Metric(
            name=name,
            family=family,
            unit=unit,
            bounds=(least, math.inf) if bounds is None else bounds,
            of=function,
            source=source,
        )
        if family != "own":
            METRICS[name] = found
        return found

    return made


def find_metric(name: str) -> Metric:
    """A metric by its name or `module:attr`. A plain function becomes one of family "own"."""
    found = registry.resolve("metric", name)
    if isinstance(found, Metric):
        return found
    if not callable(found):
        raise UsageError(
            f"metric {name!r} is a {type(found).__name__}; expected a Metric, or a function of a trace."
        )
    return Metric(name=name.rpartition(":")[2], family="own", of=found)
