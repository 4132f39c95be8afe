"""Which events a credit is about, the rule that no event is credited twice, and what credits rest on.

A credit on the team covers every chosen event; on a role or agent, those of its agents; on a turn, those its
call said; on a token, those whose span holds it; on an event, that event (`event>agent`: one receiver of it).
Two credits may share an event only as parts of one estimate on one unit (tokens, or receivers of a message).

An estimator that compares rollouts says so in each record's `assumes`, by one of the notes below. A group whose
rollouts share nothing gives every event the return less the others' mean; a group that never parts gives none.
Either trains, and tells no decision from another, so both are counted where credit is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from baton.credit.estimator import CreditError
from baton.trace.acts import agents, unit_of
from baton.trace.records import ROUNDING, Credit
from baton.trace.trace import Trace

EXACT = "told by rollouts in exactly this context"
BORROWED = "told by rollouts that are alike and not the same"
ALONE = "told by nothing but the return: no other rollout is like this one"
NO_CHOICE = "no rollout of the group did anything else"
"""What a credit rests on."""


class Covering:
    """Looks up the events of any credit on one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.chosen = [place for place, event in enumerate(trace.events) if unit_of(event) is not None]
        self._by_agent: dict[str, list[int]] = {}
        self._by_call: dict[str, list[int]] = {}
        for place in self.chosen:
            event = trace.events[place]
            self._by_agent.setdefault(event.agent, []).append(place)
            if event.call is not None:
                self._by_call.setdefault(event.call, []).append(place)
        self._by_token: dict[str, dict[int, list[int]]] = {}
        self._roles = agents(trace)

    def of(self, credit: Credit) -> list[int]:
        """Places in `trace.events`."""
        target = credit.target
        if credit.unit == "team":
            return self.chosen
        if credit.unit == "role":
            return [
                place
                for agent, role in self._roles.items()
                if (role or "") == target
                for place in self._by_agent.get(agent, ())
            ]
        if credit.unit == "agent":
            return self._by_agent.get(target, [])
        if credit.unit == "turn":
            return self._by_call.get(target, [])
        if credit.unit == "token":
            call, _, index = target.rpartition(":")
            return self._holding(call).get(int(index), []) if index.isdecimal() else []
        place = self.trace.position.get(target)
        if place is None:
            place = self.trace.position.get(target.rpartition(">")[0])
        return [] if place is None else [place]

    def holding(self, credit: Credit) -> list[int]:
        """The same; of a token that no event's span holds, those of its call."""
        found = self.of(credit)
        if found or credit.unit != "token":
            return found
        return self._by_call.get(credit.target.rpartition(":")[0], [])

    def _holding(self, call: str) -> dict[int, list[int]]:
        """Token -> the events whose span holds it; without a span, an event is all its call said."""
        if call not in self._by_token:
            found: dict[int, list[int]] = {}
            record = self.trace.call_by_id.get(call)
            whole = (0, len((record and record.completion_ids) or ()))
            for place in self._by_call.get(call, ()):
                for token in range(*(self.trace.events[place].span or whole)):
                    found.setdefault(token, []).append(place)
            self._by_token[call] = found
        return self._by_token[call]


def check_disjoint(trace: Trace, credits: Iterable[Credit]) -> None:
    """Raises where one event would be credited twice, naming both estimators."""
    owner: dict[int, Credit] = {}
    targets: dict[tuple[str, str], Credit] = {}
    covering = Covering(trace)
    for credit in credits:
        first = targets.get((credit.unit, credit.target))
        if first is not None:
            raise _twice(trace, first, credit, credit.target)
        targets[credit.unit, credit.target] = credit
        for place in covering.of(credit):
            other = owner.setdefault(place, credit)
            if (other.estimator, other.unit) != (credit.estimator, credit.unit):
                raise _twice(trace, other, credit, trace.events[place].id)
            whole = trace.events[place].id
            if other is not credit and whole in (other.target, credit.target) and credit.unit != "token":
                raise _twice(trace, other, credit, whole)


def _twice(trace: Trace, one: Credit, other: Credit, where: str) -> CreditError:
    return CreditError(
        f"trace {trace.trace_id}: {where} would be credited twice, by {one.estimator} on {one.unit} {one.target} "
        f"and by {other.estimator} on {other.unit} {other.target}. An event stands in one channel: keep one of the two "
        "there. Estimates on different levels can be layered: `partition(trace, fine, coarse, value=...)`."
    )


class Grounds(Struct, frozen=True, kw_only=True):
    """Of the events that agents chose, how many have what kind of credit."""

    events: int
    zero: float
    """The share with no credit, or a credit of zero but for rounding."""
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
            if abs(credit.value) > ROUNDING:
                for place in covering.of(credit):
                    notes.setdefault(place, set()).update(credit.assumes)
        events += len(told)
        zero += sum(place not in notes for place in told)
        borrowed += sum(BORROWED in notes.get(place, ()) for place in told)
        alone += sum(ALONE in notes.get(place, ()) for place in told)
    most = max(events, 1)
    return Grounds(events=events, zero=zero / most, borrowed=borrowed / most, alone=alone / most)
