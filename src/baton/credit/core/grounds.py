"""What credits rest on: whether an event has any, and whether rollouts like it or nothing but the return told it.

An estimator that compares rollouts says so in each record's `assumes`, by one of the notes below. A group whose
rollouts share nothing gives every event the return less the others' mean; a group that never parts gives none.
Either trains, and tells no decision from another, so both are counted where credit is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from baton.credit.core.covering import Covering
from baton.trace.records import Credit
from baton.trace.trace import Trace

EXACT = "told by rollouts in exactly this context"
BORROWED = "told by rollouts that are alike and not the same"
ALONE = "told by nothing but the return: no other rollout is like this one"
NO_CHOICE = "no rollout of the group did anything else"
"""What a credit rests on."""


class Grounds(Struct, frozen=True, kw_only=True):
    """Of the events that agents chose, how many have what kind of credit."""

    events: int
    zero: float
    """The share with no credit, or a credit of zero."""
    borrowed: float
    """The share told by rollouts that are alike and not the same."""
    alone: float
    """The share told by nothing but the return."""

    @property
    def is_bare(self) -> bool:
        """Whether most of the events with credit have it from nothing but the return."""
        return self.alone > (1 - self.zero) / 2


def grounds_of(traces: Iterable[Trace], credits: Iterable[Sequence[Credit]]) -> Grounds:
    """Counted over all chosen events of some traces. Of traces that record calls, over the events that calls said."""
    events = zero = borrowed = alone = 0
    for trace, mine in zip(traces, credits, strict=True):
        covering = Covering(trace)
        told = [place for place in covering.chosen if trace.events[place].call is not None or not trace.calls]
        notes: dict[int, set[str]] = {}
        for credit in mine:
            if credit.value:
                for place in covering.of(credit):
                    notes.setdefault(place, set()).update(credit.assumes)
        events += len(told)
        zero += sum(place not in notes for place in told)
        borrowed += sum(BORROWED in notes.get(place, ()) for place in told)
        alone += sum(ALONE in notes.get(place, ()) for place in told)
    most = max(events, 1)
    return Grounds(events=events, zero=zero / most, borrowed=borrowed / most, alone=alone / most)
