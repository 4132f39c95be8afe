"""Check a metric: one number of one trace, within its bounds, the same from any file order, or the reason why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import structs

from baton.errors import TraceError
from baton.measure.figure import Figure
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import Metric
from baton.testing.check_tools import CheckFailed, require
from baton.testing.sample_rollouts import sample_group
from baton.trace.gold import Gold
from baton.trace.trace import Trace


def check_metric(
    metric: Metric | Callable[[MeasuredTrace], float],
    traces: Sequence[Trace] = (),
    *,
    gold: Gold | None = None,
) -> None:
    """`traces` are yours; without any, rollouts of a small team are taken. At least one must be measured.

    `gold` is what the metric needs to know of the task.
    """
    if not isinstance(metric, Metric):
        name = getattr(metric, "__name__", type(metric).__name__)
        metric = Metric(name=name, family="own", of=metric)
    require(metric.name.strip(), "the metric has no name, under which a report lists it.")
    require(
        metric.formula, f"{metric.name}: its function has no docstring; say in one line what it computes."
    )
    low, high = metric.bounds
    require(low <= high, f"{metric.name}: its bounds are {low} and {high}; expected the lower one first.")
    measured = 0
    for trace in list(traces) or sample_group():
        found = _figure(metric, trace, gold)
        require(
            _figure(metric, trace, gold) == found,
            f"{metric.name}: it measured trace {trace.trace_id} in two ways. Draw from the trace alone.",
        )
        backwards = structs.replace(trace, events=trace.events[::-1])
        require(
            _figure(metric, backwards, gold) == found,
            f"{metric.name}: with the events of trace {trace.trace_id} in another order in the file, it gives another "
            "number. Go by `seq` (MeasuredTrace.events).",
        )
        if found.value is None:
            continue
        measured += 1
        require(
            math.isfinite(found.value) and low <= found.value <= high,
            f"{metric.name}: trace {trace.trace_id} has {found.value}; expected a number from {low} to {high}.",
        )
    require(
        measured, f"{metric.name}: it measured none of the traces. Give it some that it can, or gold data."
    )


def _figure(metric: Metric, trace: Trace, gold: Gold | None) -> Figure:
    try:
        return metric(MeasuredTrace(trace, gold))
    except TraceError:
        raise
    except Exception as error:
        raise CheckFailed(
            f"{metric.name}: trace {trace.trace_id} raised {type(error).__name__}: {error}; expected a number, or "
            "TraceError with what is missing."
        ) from error
