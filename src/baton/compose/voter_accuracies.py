"""How often each member of a team has been right before: what a weighted vote may know of who votes.

An agent's accuracy is estimated by Laplace's rule, (right + 1) / (returns + 2), over all that it chose to return in
past runs of the same task, judged by the task. So nobody has 0 or 1, and one who has said little is near 1/2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from baton.compose.again import own_settings
from baton.compose.known import task_behind
from baton.compose.runs import traces_at
from baton.errors import UsageError
from baton.trace.acts import chosen
from baton.trace.trace import Trace


def estimated_accuracies(paths: Iterable[str], task: str, *, trust: bool = False) -> dict[str, float]:
    """Agent -> how often what it returned was right, from traces of a task."""
    right: Counter[str] = Counter()
    returns: Counter[str] = Counter()
    for trace in traces_at(*paths):
        settings = own_settings(trace)
        if settings is None or settings.task != task:
            found = "another system's" if settings is None else f"of {settings.task}"
            raise UsageError(
                f"accuracies are estimated from runs of {task}; trace {trace.trace_id} is {found}. Give runs of {task}."
            )
        behind = task_behind(trace, trust=trust)
        if behind is None:
            raise UsageError(f"nothing is known of the task of trace {trace.trace_id}. Type: --trust")
        judge, instance = behind
        for agent, asked, said in _returned(trace):
            returns[agent] += 1
            right[agent] += judge.judge(instance, asked, said) >= 1
    if not returns:
        raise UsageError("nobody returned anything in these runs, so no accuracy can be estimated.")
    return {agent: (right[agent] + 1) / (count + 2) for agent, count in sorted(returns.items())}


def _returned(trace: Trace) -> Iterable[tuple[str, str, str]]:
    """Who returned, what it had been asked, and what it said."""
    asked: dict[str, str] = {}
    for event in trace.events:
        if event.to is not None and (event.type == "spawn" or event.decision == "delegate"):
            asked[event.to] = trace.text(event.content_ref) or ""
        elif event.type == "return" and event.status == "ok" and chosen(event):
            yield event.agent, asked.get(event.agent, ""), trace.text(event.content_ref) or ""
