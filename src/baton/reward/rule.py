"""The contract of a reward: a frozen struct of parameters that turns a trace into reward records.

Invariant: `score` is pure. The same trace and the same gold data give the same records, bit for bit,
whatever file the trace was read from and in whatever order that file holds its events. What a trace
cannot say is a `TraceError` that names what is missing, never a zero.

A rule knows no task: whatever it needs of one (the right answer, a verifier, milestones, judges) is
handed over in `Gold` as plain data or callables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from baton.errors import TraceError, UsageError
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit, RewardFamily

Judge = Callable[[Trace, str], float]
"""Scores what was said in one event of a trace: (trace, event id) -> score."""

_BASIS = " # "


class Gold(Struct, frozen=True, kw_only=True):
    """What is known about the instance a trace worked on. None: not known."""

    answer: str | None = None
    """The right answer. Case, runs of space and closing punctuation do not matter."""
    verify: Callable[[str], float] | None = None
    """Score of an answer, from 0 to 1. Goes before `answer`."""
    items: tuple[Any, ...] | None = None
    """The right items of an answer that is a list or a table: texts, or rows as mappings."""
    parts: tuple[str, ...] | None = None
    """What the task splits into."""
    covers: Callable[[str], Collection[str]] | None = None
    """Which parts a subtask's text asks for; without it, those it names as whole words."""
    milestones: tuple[str, ...] | None = None
    reached: Callable[[Trace], Collection[str]] | None = None
    """Which milestones a trace, or the beginning of one, has reached. What is reached stays reached."""
    scorer: Callable[[Trace], float] | None = None
    """A trained scorer of prefixes."""
    judges: Mapping[str, Judge] | None = None
    """By name. Without them, verdicts on the trace are used: rewards whose channel is `verdict`."""
    rubrics: Mapping[str, Judge] | None = None
    """Role -> score of the last thing an agent of that role said."""
    without: Mapping[str, float] | None = None
    """Agent -> the outcome when it is barred, from forks."""
    solo: float | None = None
    """The outcome when the last agent works alone."""
    least_work_s: float | None = None
    """T1*: the least work that solves the instance."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rule"):
    """A reward rule. The fields are its parameters; `name` is the channel its records carry."""

    family: ClassVar[RewardFamily]
    needs: ClassVar[frozenset[str]] = frozenset()
    """What of `Gold` a trainer has to find out for it: `without` (returns of runs without each agent), `solo` (those
    of runs without its `thinkers`), `of_ten` (judges who score from 1 to 10)."""

    name: str

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        """The rewards of one trace, in the order of what they land on."""
        raise NotImplementedError

    def reward(self, unit: CreditUnit, target: str, value: float, basis: str | None = None) -> Reward:
        """One record that says what computed it. `basis`: which of several ways the trace allowed."""
        if not math.isfinite(value):
            raise TraceError(
                f"{self.name}: the value on {unit} {target!r} is {value}; expected a finite number."
            )
        by = msgspec.json.encode(self, order="deterministic").decode() + (_BASIS + basis if basis else "")
        return Reward(family=self.family, unit=unit, target=target, value=float(value), name=self.name, by=by)

    def require(self, holds: bool, field: str, limit: str) -> None:
        """Refuse a parameter out of bounds."""
        if not holds:
            raise UsageError(
                f"reward {self.name!r}: {field} = {getattr(self, field)!r} is not possible; {limit}."
            )


def settings_in(by: str) -> dict[str, Any] | None:
    """The rule's settings that a record's `by` names; None where something else wrote it."""
    try:
        settings, _ = json.JSONDecoder().raw_decode(by)
    except ValueError:
        return None
    return settings if isinstance(settings, dict) and "rule" in settings else None
