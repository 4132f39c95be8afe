"""What a learned decision is: which events carry it out, which credit suits it, and which units that lands on."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from baton.credit.acts import chosen
from baton.trace.event import Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit
from baton.trace.vocabulary import Decision as Name

__all__ = ["Decision"]


class Decision(Struct, frozen=True, kw_only=True):
    """One of the survey's O1 to O5."""

    name: Name
    code: str
    question: str
    units: tuple[CreditUnit, ...]
    """Where its credit lands."""
    estimators: tuple[str, ...]
    """Credit made for it, the most telling first; each is a name of `baton credit --list`."""

    def events(self, trace: Trace) -> Iterator[Event]:
        """The events that carry it out and that somebody chose. What a budget forced is nobody's choice."""
        return (event for event in trace.events if event.decision == self.name and chosen(event))
