"""Interventions: the one thing that is different in a fork.

Each names the event it acts on, by the id the event has in the original trace, or the agent.
"""

from __future__ import annotations

from msgspec import Struct, structs

from baton.errors import UsageError, nearest
from baton.team.action import (
    Action,
    Aggregate,
    CallTool,
    Cancel,
    Delegate,
    ReadShared,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
    WriteShared,
)
from baton.trace.records import Event
from baton.trace.trace import Trace


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


class OnlyAgents(Struct, frozen=True, tag="only", tag_field="do", forbid_unknown_fields=True):
    """Agents beside whom nobody can be spawned: whoever sends for another is told that it is unavailable."""

    agents: tuple[str, ...]


class MuteAgent(Struct, frozen=True, tag="mute", tag_field="do", forbid_unknown_fields=True):
    """An agent whose messages, delegations and returns arrive empty, also those the original trace does not have."""

    agent: str


OnEvent = Replace | Drop | Force
Intervention = OnEvent | BarAgent | OnlyAgents | MuteAgent


def with_text(action: Action, text: str) -> Action:
    """The same action saying something else."""
    match action:
        case Spawn() | Delegate():
            return structs.replace(action, task=text)
        case Send():
            return Send(action.agent, text)
        case Return():  # as sure as it was, of something else; who says nothing is sure of nothing
            return Return(text, action.confidence if text else None)
        case Stop():
            return Stop(text)
        case WriteShared():
            return WriteShared(action.name, text)
        case CallTool() | Wait() | Cancel() | Aggregate() | ReadShared():
            raise UsageError(
                f"a {type(action).__name__.lower()} has no text to replace; force another action there instead."
            )


def has_text(action: Action) -> bool:
    """Whether an action says something that can be replaced."""
    return isinstance(action, Spawn | Delegate | Send | Return | Stop | WriteShared)


def check_fits(change: Intervention, trace: Trace) -> None:
    """Refuse a change that would have no effect on this trace, and say what would."""
    if isinstance(change, OnlyAgents):
        return
    if isinstance(change, BarAgent | MuteAgent):
        known = {event.to for event in trace.events if event.type == "spawn" and event.to is not None}
        was = "spawned in"
        if isinstance(change, MuteAgent):
            known |= {event.agent for event in trace.events}
            was = "in"
        if change.agent not in known:
            hint = nearest(change.agent, known) if known else "Nobody was."
            raise UsageError(f"no agent {change.agent!r} was {was} trace {trace.trace_id}. {hint}")
        return
    event = trace.event(change.at)  # an error that names the nearest event
    if event.type == "tool_result" and event.duration_s is not None:
        if not isinstance(change, Replace):
            raise UsageError(f"{event.id} is a tool's result, which can only be replaced.")
    elif not _is_action(event):
        raise UsageError(
            f"{event.id} is a {event.type} ({event.status}) that no agent chose, so it cannot be changed. "
            "Change an action that led to it: a spawn, message, tool call, return, wait, aggregate or stop."
        )
    elif isinstance(change, Replace) and not _has_text(event):
        raise UsageError(
            f"{event.id} has no text of its own to replace. Force another action there instead, or drop it."
        )


def _is_action(event: Event) -> bool:
    """Whether an agent did this by a verb (see `baton.team.verbs`)."""
    if event.type in ("despawn", "human_intervention", "tool_result") or event.status == "forced":
        return False
    if event.type == "orchestrator_decision" and event.status in ("invalid", "failed"):
        return event.decision != "none"  # none: what was said is no action, or the engine said nothing
    return event.type != "safety_event" or event.decision != "none" or event.call is not None


def _has_text(event: Event) -> bool:
    said = ("spawn", "delegate", "communicate", "stop")
    # What was read in the shared memory can be replaced as a tool's result can.
    read = "shared_memory" in event.extra
    return read or event.type in ("spawn", "message", "return") or event.decision in said
