"""What is known of an instance besides the trace: handed over as data or callables, since measures know no task."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from baton.trace.trace import Trace


class Gold(Struct, frozen=True, kw_only=True):
    """Truth about one instance. None: not known."""

    verify: Callable[[str], float] | None = None
    """Score of an answer, 0 to 1."""
    items: tuple[Any, ...] | None = None
    """The right items of an answer that is a list or a table: texts, or rows as mappings."""
    key: tuple[str, ...] = ()
    """Columns that name a row; a table is then scored cell by cell, else row by row."""
    optimum: float | None = None
    """V*: what the best policy gets on average."""
    reference: float | None = None
    """V_ref: what a policy to compare with gets, such as a uniform one."""
    least_work_s: float | None = None
    """T1*: the least work that solves the instance."""
    least_span_s: float | None = None
    """Tinf*: its longest chain, at the least."""
    slots: int | None = None
    """P: how many agents may be at work at once."""
    milestones: tuple[str, ...] | None = None
    reached: Callable[[Trace], Collection[str]] | None = None
    """Which milestones a trace has reached."""
    subtask_of: Callable[[str], str] | None = None
    """Which subtask a task's text asks for; without it, texts that differ are different subtasks."""
    facts: tuple[str, ...] | None = None
    """Texts that the answer cannot do without."""
    best_aggregate: float | None = None
    """Acc_opt: how often the best aggregator would be right."""
