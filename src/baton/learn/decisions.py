"""What a learned decision is: which events carry it out, which credit suits it, and which units that lands on."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from baton.credit.core.acts import chosen
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit
from baton.trace.vocabulary import Decision as Name


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


# -- spawn --
# When to spawn, and when not to.
#
# Not spawning is a choice and earns credit too: paired forks run both branches under the same luck, and the one not
# taken gets minus the chance-weighted effect (Observation 2 of the survey: on-policy data alone cannot tell it).

SPAWN = Decision(
    name="spawn",
    code="O1",
    question="how many agents, and whether any",
    units=("orchestrator",),
    estimators=("spawn-fork", "spawn-combined", "spawn-doubly-robust", "coma"),
)


# -- delegate --
# Whom to give a task.
#
# A choice among agents that are there; COMA compares it with what the policy would have done on average.

DELEGATE = Decision(
    name="delegate",
    code="O2",
    question="who gets which task",
    units=("orchestrator",),
    estimators=("coma", "siblings", "telescope"),
)


# -- communicate --
# How to communicate.
#
# Message credit by causal replay asks what would have come of another message at the same moment.

COMMUNICATE = Decision(
    name="communicate",
    code="O3",
    question="what is said to whom",
    units=("message",),
    estimators=("message-replay", "coma", "siblings"),
)


# -- aggregate --
# How to aggregate what others returned.

AGGREGATE = Decision(
    name="aggregate",
    code="O4",
    question="how results become one",
    units=("orchestrator",),
    estimators=("coma", "siblings", "telescope"),
)


# -- stop --
# When to stop.
#
# Trained by what going on would have been worth: forced continuation, shadow aggregation and backward regression, or
# a critic's value of going on. A stop that a cap forced is nobody's choice and is never trained as chosen.

STOP = Decision(
    name="stop",
    code="O5",
    question="whether to stop now",
    units=("orchestrator",),
    estimators=("stop-value", "coma", "telescope"),
)


# -- __init__ --
# The five learned decisions, each with its own credit on its own tokens.

DECISIONS: dict[str, Decision] = {
    decision.name: decision for decision in (SPAWN, DELEGATE, COMMUNICATE, AGGREGATE, STOP)
}
