"""The verbs of Baton for people: plain functions that return when the work is done.

A program that already runs an event loop, a notebook for one, takes the twins of the same names in `baton.aio`. Traces
go in and come out singly or as lists; wherever a name stands, the thing itself may stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from baton.compose import python_runs, python_training
from baton.compose.known import measure_gold, reward_gold
from baton.compose.python_runs import as_given, traces_in
from baton.compose.python_training import RewardLike, TrainedRun, as_rules, evaluate
from baton.compose.waking import run_waking
from baton.credit.estimator import Estimator
from baton.errors import UsageError
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import Metric, find_metric
from baton.measure.report.report import MeasureReport
from baton.measure.report.report import measure as report_on
from baton.reward.reward_recipe import load_reward_recipe, with_rewards
from baton.tasks.task import Task
from baton.trace.gold import Gold
from baton.trace.trace import Trace, drawn
from baton.view.report.training_report import write_report

P = ParamSpec("P")
T = TypeVar("T")
GoldLike = Gold | str | Callable[[str], float]
"""What is known of an instance: all of it, the right answer, or a function that scores an answer."""

__all__ = ["credit", "evaluate", "fork", "measure", "replay", "resume", "run", "score", "train"]


def _now(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A coroutine function as a plain one."""

    @wraps(work)
    def done(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run_waking(work(*args, **kwargs))
        name = work.__name__
        raise UsageError(
            f"an event loop is running here, and baton.{name} would block it. "
            f"Write: await baton.aio.{name}(...)"
        )

    return done


def _with_report(work: Callable[P, TrainedRun]) -> Callable[P, TrainedRun]:
    """Training that leaves a `report.html` in the run's folder, as the command does."""

    @wraps(work)
    def done(*args: P.args, **kwargs: P.kwargs) -> TrainedRun:
        run = work(*args, **kwargs)
        write_report(run.out)
        return run

    return done


run = _now(python_runs.run)
replay = _now(python_runs.replay)
fork = _now(python_runs.fork)
train = _with_report(python_training.train)
_resume_training = _with_report(python_training.resume_training)
_resume_runs = _now(python_runs.resume)
_credit = _now(python_runs.credit)


def resume(path: str | Path | TrainedRun, *args: Any, **kwargs: Any) -> list[Trace] | TrainedRun:
    """Go on with what was cut off in a folder: the runs of a team (`baton.run(..., out=)`), or a training run.

    Runs give their finished traces: see `baton.compose.python_runs.resume` for `policy`, `instruct` and the rest. A
    training run gives itself, trained: `baton.resume(path, settings={"train.steps": 80})`.
    """
    if isinstance(path, TrainedRun) or (Path(path) / "run.json").is_file():
        return _resume_training(path, *args, **kwargs)
    return _resume_runs(path, *args, **kwargs)


@overload
def score(
    traces: Trace,
    reward: RewardLike,
    *,
    gold: GoldLike | Mapping[str, GoldLike] | None = None,
    task: Task | None = None,
    trust: bool = False,
) -> Trace: ...
@overload
def score(
    traces: Iterable[Trace] | str | Path,
    reward: RewardLike,
    *,
    gold: GoldLike | Mapping[str, GoldLike] | None = None,
    task: Task | None = None,
    trust: bool = False,
) -> list[Trace]: ...
def score(
    traces: Trace | Iterable[Trace] | str | Path,
    reward: RewardLike,
    *,
    gold: GoldLike | Mapping[str, GoldLike] | None = None,
    task: Task | None = None,
    trust: bool = False,
) -> Trace | list[Trace]:
    """Say what traces are worth: the traces with reward records on them.

    `reward` is a recipe of `baton reward`, a rule, or several rules. What is right is told by `gold` (for all traces,
    or by trace id), else by the task that the trace names, else by the outcome it records.
    """
    many = traces_in(traces)
    recipe = load_reward_recipe(reward, trust=trust) if isinstance(reward, str) else as_rules(reward)
    scored = []
    for trace in many:
        told = gold.get(trace.trace_id) if isinstance(gold, Mapping) else gold
        known = told if isinstance(told, Gold) else reward_gold(trace, _gold(told), task=task, trust=trust)
        scored.append(with_rewards(trace, recipe.score(trace, known)))
    return as_given(traces, scored)


def _gold(told: str | Callable[[str], float] | None) -> dict[str, Any]:
    if told is None:
        return {}
    return {"answer": told} if isinstance(told, str) else {"verify": told}


@overload
def credit(traces: Trace, estimator: str | Estimator = "group", **settings: Any) -> Trace: ...
@overload
def credit(
    traces: Iterable[Trace] | str | Path, estimator: str | Estimator = "group", **settings: Any
) -> list[Trace]: ...
def credit(
    traces: Trace | Iterable[Trace] | str | Path, estimator: str | Estimator = "group", **settings: Any
) -> Trace | list[Trace]:
    return _credit(traces, estimator, **settings)


credit.__doc__ = python_runs.credit.__doc__


def measure(
    traces: Trace | Iterable[Trace] | str | Path,
    *,
    single: Iterable[Trace] = (),
    best_of: Iterable[Trace] = (),
    metrics: Iterable[str | Metric] = (),
    task: Task | None = None,
    trust: bool = False,
) -> MeasureReport:
    """Fill in the reporting checklist from traces: success, parallelism, overhead, failures.

    `single` are traces of a single agent on the same tasks, `best_of` single-agent samples, several a task. `metrics`
    of your own are worked out beside the survey's.
    """

    def readings(some: Iterable[Trace]) -> list[MeasuredTrace]:
        return [MeasuredTrace(trace, measure_gold(trace, task=task, trust=trust)) for trace in some]

    own = [find_metric(one) if isinstance(one, str) else one for one in metrics]
    team = readings(drawn(list(traces_in(traces))))  # a fork is no rollout of its own
    return report_on(team, single=readings(single), samples=readings(best_of), metrics=own)
