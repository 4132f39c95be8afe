"""The contract of a reward: a frozen struct of parameters that turns a trace into reward records.

Invariant: `score` is pure. The same trace and the same gold data give the same records, bit for bit,
whatever file the trace was read from and in whatever order that file holds its events. What a trace
cannot say is a `TraceError` that names what is missing, never a zero.

A rule knows no task: whatever it needs of one (the right answer, a verifier, milestones, judges) is
handed over in `Gold` as plain data or callables.
"""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec
from msgspec import Struct

from baton.errors import TraceError, UsageError
from baton.trace.gold import Gold
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit, RewardFamily

_BASIS = " # "


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rule"):
    """A reward rule. The fields are its parameters; `name` is the channel its records carry."""

    family: ClassVar[RewardFamily]
    needs: ClassVar[frozenset[str]] = frozenset()
    """What of `Gold` a trainer has to find out for it: `without` (returns of runs without each agent), `shapley` (of
    runs with some of them), `solo` (those
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
