"""Interventions: the one thing that is different in a fork.

Each names the event it acts on, by the id the event has in the original trace.
"""

from __future__ import annotations

from msgspec import Struct, structs

from baton.errors import UsageError
from baton.team.action import Action, Aggregate, CallTool, Cancel, Delegate, Return, Send, Spawn, Stop, Wait

__all__ = ["BarAgent", "Drop", "Force", "Intervention", "Replace", "with_text"]


class Replace(Struct, frozen=True, tag="replace", tag_field="do", forbid_unknown_fields=True):
    """The event happens with other content. An empty text blanks the payload."""

    at: str
    text: str
    by: str | None = None
    """Who made the change, where a person did."""


class Drop(Struct, frozen=True, tag="drop", tag_field="do", forbid_unknown_fields=True):
    """The event does not take effect: a message is not delivered, a spawn does not happen."""

    at: str
    by: str | None = None


class Force(Struct, frozen=True, tag="force", tag_field="do", forbid_unknown_fields=True):
    """Another action in the event's place; whatever else the same completion said is dropped."""

    at: str
    action: Action
    by: str | None = None


class BarAgent(Struct, frozen=True, tag="bar", tag_field="do", forbid_unknown_fields=True):
    """An agent that cannot be spawned: its spawner is told it is unavailable."""

    agent: str


Intervention = Replace | Drop | Force | BarAgent


def with_text(action: Action, text: str) -> Action:
    """The same action saying something else."""
    match action:
        case Spawn() | Delegate():
            return structs.replace(action, task=text)
        case Send() | Return():
            return structs.replace(action, text=text)
        case Stop():
            return Stop(text)
        case CallTool() | Wait() | Cancel() | Aggregate():
            raise UsageError(
                f"a {type(action).__name__.lower()} has no text to replace; force another action there instead."
            )
