"""How often each member of a team has been right before: what a weighted vote may know of who votes.

An agent's accuracy is estimated by Laplace's rule, (right + 1) / (returns + 2), over all that it chose to return in
past runs of the same task, judged by the task. So nobody has 0 or 1, and one who has said little is near 1/2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from baton.compose.again import is_trained, own_settings
from baton.compose.run_settings import Settings
from baton.compose.runs import traces_at
from baton.compose.team_from_settings import task_of
from baton.errors import UsageError
from baton.tasks.task import Instance, Task
from baton.trace.acts import chosen
from baton.trace.trace import Trace


def estimated_accuracies(paths: Iterable[str], now: Settings) -> dict[str, float]:
    """Agent -> how often what it returned was right, from traces of the task of a run that is about to begin.

    Traces of `baton run` are judged by their own task's settings, rollouts of training by those of the new run.
    """
    right: Counter[str] = Counter()
    returns: Counter[str] = Counter()
    for trace in traces_at(*paths):
        judge, instance = _judge(trace, now)
        for agent, asked, said in _returned(trace):
            returns[agent] += 1
            right[agent] += judge.judge(instance, asked, said) >= 1
    if not returns:
        raise UsageError("nobody returned anything in these runs, so no accuracy can be estimated.")
    return {agent: (right[agent] + 1) / (count + 2) for agent, count in sorted(returns.items())}


def _judge(trace: Trace, now: Settings) -> tuple[Task, Instance]:
    """The task that a trace worked on, and its instance."""
    settings = own_settings(trace)
    if settings is not None and settings.task == now.task:
        task = task_of(settings)
        return task, task.instance(settings.instance_number, settings.split)
    named = re.fullmatch(rf"{re.escape(now.task)}/(train|test)/(\d+)", trace.header.task_id)
    if settings is None and is_trained(trace) and named is not None:
        task = task_of(now)
        return task, task.instance(int(named[2]), "train" if named[1] == "train" else "test")
    raise UsageError(
        f"accuracies are estimated from runs of {now.task}; trace {trace.trace_id} worked on {trace.header.task_id}. "
        f"Give runs of {now.task}."
    )


def _returned(trace: Trace) -> Iterable[tuple[str, str, str]]:
    """Who returned, what it had been asked, and what it said."""
    asked: dict[str, str] = {}
    for event in trace.events:
        if event.to is not None and (event.type == "spawn" or event.decision == "delegate"):
            asked[event.to] = trace.text(event.content_ref) or ""
        elif event.type == "return" and event.status == "ok" and chosen(event):
            yield event.agent, asked.get(event.agent, ""), trace.text(event.content_ref) or ""
