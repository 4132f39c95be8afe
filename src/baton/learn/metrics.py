"""A step in figures: returns, rewards by channel, sizes of traces, and what the update did."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from baton.learn.answered import failures
from baton.learn.buffer import cut_off
from baton.learn.update import Report
from baton.measure.figure import student_t
from baton.trace.trace import Trace

__all__ = ["interval", "learned", "rewards", "sizes"]


def interval(groups: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Mean, and half-width of its 95 % interval (Student's t over groups; None for one group).

    Rollouts of one group are of one instance, so the group is what was drawn. Groups may differ in size.
    """
    values = [value for group in groups for value in group]
    mean, num = float(np.mean(values)), len(groups)
    if num < 2:
        return {"mean": mean, "half": None}
    left = math.fsum((math.fsum(group) - mean * len(group)) ** 2 for group in groups)
    return {"mean": mean, "half": student_t(num - 1) * math.sqrt(left * num / (num - 1)) / len(values)}


def rewards(traces: Sequence[Trace]) -> dict[str, float]:
    """Mean over traces of each channel's sum."""
    sums: dict[str, list[float]] = {}
    for trace in traces:
        for reward in trace.rewards:
            sums.setdefault(reward.channel, []).append(reward.value)
    return {channel: math.fsum(values) / len(traces) for channel, values in sorted(sums.items())}


def sizes(traces: Sequence[Trace]) -> dict[str, float]:
    def mean(count: Callable[[Trace], int]) -> float:
        return sum(map(count, traces)) / len(traces)

    return {
        "agents": mean(lambda t: 1 + sum(e.type == "spawn" and e.status == "ok" for e in t.events)),
        "events": mean(lambda t: len(t.events)),
        "calls": mean(lambda t: len(t.calls)),
        "messages": mean(lambda t: sum(e.type == "message" for e in t.events)),
        "invalid": mean(lambda t: sum(e.status == "invalid" for e in t.events)),
        "failed": mean(lambda t: sum(1 for _ in failures(t))),
        "cut_off": mean(lambda t: int(cut_off(t))),
    }


def learned(
    reports: Sequence[Report], norms: Sequence[float], moved: Sequence[float]
) -> dict[str, float | None]:
    """Means over the step's optimiser steps (`moved`: over policies); None where nothing was there to learn from."""

    def mean(name: str) -> float | None:
        found = [report.means[name] for report in reports if name in report.means]
        return float(np.mean(found)) if found else None

    return {
        "loss": float(np.mean([report.loss for report in reports])) if reports else None,
        "grad_norm": float(np.mean(norms)) if norms else None,
        "entropy": mean("entropy"),
        "kl": mean("kl"),
        "clip_fraction": mean("clipped"),
        "moved": float(np.mean(moved)) if moved else None,
        "computed_tokens": float(sum(report.num_computed for report in reports)),
        "row_tokens": float(sum(report.num_row_tokens for report in reports)),
    }
