"""A line about one trace: what the table of all traces shows, sorts and filters by.

None: not measured, or not read yet. Nothing of what was said is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from baton.errors import BatonError
from baton.measure.metrics.scale import seconds_of, tokens_of
from baton.trace.outcome import estimated_tokens, task_score, team_return
from baton.trace.trace import Trace, meta_table
from baton.view.terminal.endings import ending

Measured = Callable[[Trace], float | None]
_INSTANCE = re.compile(r"(.+)/(?:train|test)/\d+", re.DOTALL)


class ListedTrace(Struct, frozen=True, kw_only=True):
    """A line about one trace."""

    id: str
    task: str
    """Of which the instance is one of many; where nobody tells them apart, the instance."""
    instance: str
    finished: bool
    events: int
    read: bool = True
    """False: so far only what a store says of all its traces."""
    agents: int | None = None
    tokens: float | None = None
    estimated: bool = False
    """Whether a part of the tokens is an estimate."""
    seconds: float | None = None
    reward: float | None = None
    """What the team earned, as every reader of a trace understands it."""
    success: float | None = None
    """The task's verdict on the answer, as recorded."""
    regret: float | None = None
    price: float | None = None
    stop: str | None = None
    """Why there is no more of it, in a word or two."""
    topology: str | None = None
    system: str | None = None
    policies: str | None = None
    """Who answered its calls, by name."""
    step: int | None = None
    """The training step that played it; None outside training."""
    forked_from: str | None = None


def line_of(trace: Trace, regret: Measured | None = None, price: Measured | None = None) -> ListedTrace:
    """The line about a trace. `regret` and `price`: what measures them; None: nobody attached it."""
    meta = trace.header.meta
    train = meta.get("train")
    step = train.get("step") if isinstance(train, dict) else None
    forked = meta.get("forked_from")
    policies = sorted({call.policy for call in trace.calls if call.policy})
    score = _tried(task_score, trace)
    return ListedTrace(
        id=trace.trace_id,
        task=task_of(trace.header.task_id, meta_table(trace.header, "run", "task").get("task")),
        instance=trace.header.task_id,
        finished=trace.finished,
        events=len(trace.events),
        agents=1 + sum(e.type == "spawn" and e.status == "ok" for e in trace.events) if trace.events else 0,
        tokens=tokens_of(trace),
        estimated=estimated_tokens(trace) > 0,
        seconds=seconds_of(trace),
        reward=_tried(team_return, trace),
        success=score[0] if score is not None else None,
        regret=None if regret is None else _tried(regret, trace),
        price=None if price is None else _tried(price, trace),
        stop=ending(trace),
        topology=trace.header.topology,
        system=trace.header.system,
        policies=", ".join(policies) or None,
        step=step if type(step) is int and abs(step) < 2**53 else None,
        forked_from=forked if isinstance(forked, str) else None,
    )


def task_of(instance: str, told: Any = None) -> str:
    """The task that an instance is of: as the run tells, else as instances of Baton's own tasks are named."""
    if isinstance(told, str) and told:
        return told
    named = _INSTANCE.fullmatch(instance)
    return instance if named is None else named[1]


def _tried(measured: Callable[[Trace], Any], trace: Trace) -> Any:
    """A trace may say too little, or contradict itself: then it is not measured."""
    try:
        return measured(trace)
    except BatonError:
        return None
