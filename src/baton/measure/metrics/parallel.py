"""E2, parallelism efficiency: what being many saved, against what the task itself allows.

Work T1 = sum of durations, span Tinf = longest weighted path, makespan T_P on P slots; T1* and Tinf* are
the task's least work and span. Speed-up is against T1*, since the team's own work would reward busywork.
Dead work and usefulness are by ancestry: an event is of use when the final answer depends on it.
Sources: Brent 1974 (work and span); Kimi K2.5 (critical steps); the survey's operational definitions.
"""

from __future__ import annotations

import math

from baton.measure.figure import NotMeasured
from baton.measure.measured import CostKind, MeasuredTrace
from baton.measure.metric import metric
from baton.trace.graph.timing import critical_path
from baton.trace.trace import meta_table


@metric("work", "E2", unit="s")
def work(reading: MeasuredTrace) -> float:
    """T1: all durations together."""
    return reading.work_s


@metric("span", "E2", unit="s")
def span(reading: MeasuredTrace) -> float:
    """Tinf: durations along the longest path."""
    found = critical_path(reading.graph)
    if found is None:
        raise NotMeasured("no event was timed")
    return found[1]


@metric("makespan", "E2", unit="s")
def makespan(reading: MeasuredTrace) -> float:
    """T_P: from the start to the end of the last event."""
    return reading.seconds


@metric("serial_over_parallel", "E2")
def serial_over_parallel(reading: MeasuredTrace) -> float:
    """T_serial/T_parallel: the trace's own work over its makespan."""
    return reading.work_s / _makespan(reading)


@metric("useful_speed_up", "E2")
def useful_speed_up(reading: MeasuredTrace) -> float:
    """T1*/T_P: least work over makespan."""
    return _least_work(reading) / _makespan(reading)


@metric("work_inflation", "E2")
def work_inflation(reading: MeasuredTrace) -> float:
    """T1/T1*: work done over the least."""
    return reading.work_s / _least_work(reading)


@metric("schedule_efficiency", "E2", bounds=(0.0, 1.0))
def schedule_efficiency(reading: MeasuredTrace) -> float:
    """max(T1*/P, Tinf*)/T_P: the least possible makespan over the real one."""
    least = max(_least_work(reading) / _slots(reading), _least_span(reading))
    found = least / _makespan(reading)
    if found > 1 + 1e-9:
        raise NotMeasured(
            "it took less time than the gold data says is possible: its least work or span is wrong"
        )
    return min(1.0, found)


@metric("mean_concurrency", "E2")
def mean_concurrency(reading: MeasuredTrace) -> float:
    """Agents busy at a time, on average."""
    found = reading.busy.mean
    if found is None:
        raise NotMeasured("no event was timed")
    return found


@metric("serial_collapse", "E2", bounds=(-math.inf, math.inf))
def serial_collapse(reading: MeasuredTrace) -> float:
    """1 - (mean concurrency - 1)/(min(P, T1*/Tinf*) - 1): 0 as parallel as the task allows, 1 one at a time."""
    possible = min(_slots(reading), _least_work(reading) / _least_span(reading))
    if possible <= 1:
        raise NotMeasured("the task cannot be done in parallel, so there is nothing to collapse")
    return 1 - (mean_concurrency.of(reading) - 1) / (possible - 1)


@metric("critical_steps", "E2", unit="steps")
def critical_steps(reading: MeasuredTrace) -> float:
    """Sum over stages of the leading agent's steps plus the most steps of any one sub-agent."""
    if not reading.stages.total_steps:
        raise NotMeasured("no agent took a step")
    return reading.stages.critical_steps


def _dead(reading: MeasuredTrace, kind: CostKind) -> float:
    return reading.share((event for event in reading.trace.events if event.id not in reading.used), kind)


@metric("dead_tokens", "E2", bounds=(0.0, 1.0))
def dead_tokens(reading: MeasuredTrace) -> float:
    """Dead work in tokens: share spent on events that the answer does not depend on."""
    return _dead(reading, "tokens")


@metric("dead_seconds", "E2", bounds=(0.0, 1.0))
def dead_seconds(reading: MeasuredTrace) -> float:
    """Dead work in seconds: share spent on events that the answer does not depend on."""
    return _dead(reading, "seconds")


@metric("useful_agent_share", "E2", bounds=(0.0, 1.0))
def useful_agent_share(reading: MeasuredTrace) -> float:
    """Spawned agents with a part in the answer, of all that were spawned."""
    spawned = _spawned(reading)
    useful = {event.agent for event in reading.trace.events if event.id in reading.used}
    return len(useful & spawned) / len(spawned)


@metric("useful_action_share", "E2", bounds=(0.0, 1.0))
def useful_action_share(reading: MeasuredTrace) -> float:
    """Events of spawned agents that the answer depends on, of all of theirs."""
    spawned = _spawned(reading)
    acts = [event for event in reading.trace.events if event.agent in spawned]
    if not acts:
        raise NotMeasured("no spawned agent did anything")
    return sum(event.id in reading.used for event in acts) / len(acts)


def _spawned(reading: MeasuredTrace) -> set[str]:
    spawned = {life.agent for life in reading.lineage.lives.values() if life.parent is not None}
    if not spawned:
        raise NotMeasured("nobody was spawned")
    return spawned


def _makespan(reading: MeasuredTrace) -> float:
    if reading.seconds <= 0:
        raise NotMeasured("the trace took no time")
    return reading.seconds


def _least_work(reading: MeasuredTrace) -> float:
    found = reading.gold.least_work_s
    if found is None or found <= 0:
        raise NotMeasured("the task's least work T1* is not given")
    return found


def _least_span(reading: MeasuredTrace) -> float:
    found = reading.gold.least_span_s
    if found is None or found <= 0:
        raise NotMeasured("the task's least span Tinf* is not given")
    return found


def _slots(reading: MeasuredTrace) -> float:
    """P: as given, else the run's own limit of agents at once."""
    found = reading.gold.slots or meta_table(reading.trace.header, "run", "limits").get("concurrent")
    if not isinstance(found, int) or found < 1:
        raise NotMeasured("the number of slots P is not given")
    return found
