"""E4, what a delegation costs: tokens of those that were sent to work, for each time that somebody was.

A delegation is a spawn or a delegate that took effect. Its tokens are those of its receiver from then until it is given
work again; what the receiver hands on to others are delegations of their own. So the delegations of a trace share the
tokens of all its sub-agents among them, and none is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from baton.measure.figure import Figure, NotMeasured, mean, told
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.measure.metrics.collaboration import delegations

NO_ROLE = "(no role)"


class Delegated(Struct, frozen=True, kw_only=True):
    """One delegation and what it cost."""

    event: str
    agent: str
    role: str
    """Of the receiver."""
    tokens: float


def delegated(reading: MeasuredTrace) -> list[Delegated]:
    """All delegations of a trace, in order."""
    given = delegations(reading)
    if not given:
        raise NotMeasured("no subtask was given to anybody")
    reading.cost((), "tokens")  # says so where no token was counted
    spent: dict[str, float] = {event.id: 0.0 for event in given}
    open_: dict[str, str] = {}
    starts = {event.id for event in given}
    for event in reading.events:
        if event.agent in open_:
            spent[open_[event.agent]] += event.tokens or 0
        if event.id in starts and event.to is not None:
            open_[event.to] = event.id
    roles = {life.agent: life.role for life in reading.lineage.lives.values()}
    return [
        Delegated(
            event=event.id,
            agent=event.to or "",
            role=roles.get(event.to or "") or NO_ROLE,
            tokens=spent[event.id],
        )
        for event in given
    ]


@metric("tokens_per_delegation", "E4", unit="tokens")
def tokens_per_delegation(reading: MeasuredTrace) -> float:
    """Tokens of sub-agents over the times that one was given work."""
    found = delegated(reading)
    return sum(one.tokens for one in found) / len(found)


def tokens_by_role(readings: Iterable[MeasuredTrace]) -> dict[str, Figure]:
    """Role of the receiver -> tokens per delegation, the mean over traces."""
    by_role: dict[str, list[float]] = {}
    for found in told(readings, delegated)[0]:
        roles: dict[str, list[float]] = {}
        for one in found:
            roles.setdefault(one.role, []).append(one.tokens)
        for role, tokens in roles.items():
            by_role.setdefault(role, []).append(sum(tokens) / len(tokens))
    return {role: mean(values, (0.0, float("inf"))) for role, values in sorted(by_role.items())}
