"""Meaning, of rewards, credits and charges: does each land on a unit that is in the trace?

What a target is for each unit: see baton.trace.records.
"""

from __future__ import annotations

from functools import cached_property

from baton.trace.records import Charge, Credit, Event, Reward
from baton.trace.validation.parts import Parts
from baton.trace.validation.problem import shown

_EXPECTED = {
    "team": "the trace's id",
    "orchestrator": "the id of an event that carries a decision",
    "role": "the name of a role",
    "agent": "the id of an agent",
    "turn": "the id of a call",
    "message": "the id of an event that says something to somebody, or `event>agent`",
    "tool_call": "the id of a tool_call event",
    "token": "`call:index`, inside that call's completion",
}


def check_targets(parts: Parts) -> None:
    units = _Units(parts)
    for kind in ("reward", "credit", "charge"):
        record: Reward | Credit | Charge
        for index, record in enumerate(parts.of(kind)):
            if record.target and not units.has(record.unit, record.target):
                was, expected = shown(record.target), _EXPECTED[record.unit]
                parts.report("meaning/unknown-target", kind, index, "target", was, expected)


class _Units:
    """What can be rewarded in one trace. A unit that is there but broken counts as there."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def has(self, unit: str, target: str) -> bool:
        parts = self._parts
        if unit == "team":
            return parts.header is None or target == parts.header.trace_id
        if unit in ("role", "agent"):
            known = self._roles if unit == "role" else self._agents
            return target in known or bool(parts.broken) or parts.lost
        if not parts.calls_known and unit in ("turn", "token"):
            return True
        if parts.excuses(target):
            return True
        if unit == "turn":
            return target in parts.call_position
        if unit == "token":
            return self._has_token(target)
        return self._has_event(unit, target)

    def _has_event(self, unit: str, target: str) -> bool:
        event = self._event(target)
        if unit == "orchestrator":
            return event is not None and (event.decision != "none" or event.type == "orchestrator_decision")
        if unit == "tool_call":
            return event is not None and event.type == "tool_call"
        if event is None and ">" in target:
            id_, _, receiver = target.rpartition(">")
            event = self._event(id_) if receiver in self._agents else None
        return event is not None and (
            event.type in ("message", "return") or event.decision in ("communicate", "delegate")
        )

    def _event(self, id_: str) -> Event | None:
        index = self._parts.position.get(id_)
        return None if index is None else self._parts.events[index]

    def _has_token(self, target: str) -> bool:
        id_, _, index = target.rpartition(":")
        at = self._parts.call_position.get(id_)
        if at is None or not index.isascii() or not index.isdigit() or len(index) > 18:
            return self._parts.excuses(id_)
        call = self._parts.calls[at]
        length = len(call.completion_ids) if call.completion_ids is not None else call.completion_tokens
        return length is None or int(index) < length

    @cached_property
    def _agents(self) -> set[str | None]:
        events, calls = self._parts.events, self._parts.calls
        return (
            {event.agent for event in events}
            | {event.to for event in events}
            | {call.agent for call in calls}
        )

    @cached_property
    def _roles(self) -> set[str | None]:
        return {event.role for event in self._parts.events} | {call.role for call in self._parts.calls}
