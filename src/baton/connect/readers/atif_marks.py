"""What Baton puts under `extra.baton` of an ATIF file so that it can read it back, checked before it is believed.

A file may be a stranger's: a mark that is not of its form counts as none, and what it stands beside is read as ATIF.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

from baton.trace.records import Reward
from baton.trace.vocabulary import TOPOLOGIES, Decision, EdgeType, EventType, Status, Topology

MARK: Final = "baton"
"""Name of Baton's own entry among the `extra` of a step."""


class EventMark(Struct, frozen=True, kw_only=True):
    """An event, but for what ATIF itself says of it."""

    event: str
    type: EventType
    seq: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    t: float | None = None
    duration_s: float | None = None
    to: str | None = None
    tool: str | None = None
    decision: Decision | None = None
    status: Status | None = None
    tokens: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    trusted: bool | None = None
    why: str | None = None
    media_type: str = "text/plain"
    extra: dict[str, Any] = field(default_factory=dict)
    after: tuple[tuple[str, EdgeType, str | None], ...] = ()
    empty: bool = False
    """There was no content, or it was withheld."""
    text: bool = False
    """The content stands as `text` among a tool call's arguments."""
    content: str | None = None
    """The content, where a step's message is its call's."""


class CallMark(Struct, frozen=True, kw_only=True):
    """What ATIF cannot say of a call."""

    temperature: float | None = None
    finish_reason: str | None = None
    duration_s: float | None = None


class AgentMark(Struct, frozen=True, kw_only=True):
    """What ATIF cannot say of an agent."""

    role: str | None = None
    parent: str | None = None


class RunMark(Struct, frozen=True, kw_only=True):
    """What ATIF cannot say of a run."""

    topology: Topology | None = None
    finished: bool | None = None
    rewards: tuple[Reward, ...] = ()


class PromptMark(Struct, frozen=True, kw_only=True):
    """A step that is part of a prompt and no act."""

    prompt: str
    """The speaker."""


def has_mark(value: dict[str, Any]) -> bool:
    """Whether Baton wrote this."""
    extra = value.get("extra")
    return extra is not None and isinstance(extra, dict) and isinstance(extra.get(MARK), dict)


def event_mark(value: dict[str, Any]) -> EventMark | None:
    """The event that stands beside a step, tool call or result."""
    return _read(value, EventMark) if has_mark(value) and value["extra"][MARK] else None


def prompt_mark(value: dict[str, Any]) -> PromptMark | None:
    return _read(value, PromptMark) if has_mark(value) else None


def call_mark(value: dict[str, Any]) -> CallMark:
    return (_read(value, CallMark) if has_mark(value) else None) or CallMark()


def agent_mark(value: dict[str, Any]) -> AgentMark | None:
    return _read(value, AgentMark) if has_mark(value) else None


def run_mark(value: dict[str, Any]) -> RunMark:
    if not has_mark(value):
        return RunMark()
    found: RunMark | None = _read(value, RunMark)
    if found is None:  # of another version, perhaps: what can be believed by itself
        topology = value["extra"][MARK].get("topology")
        return RunMark(topology=topology if topology in TOPOLOGIES else None)
    return found


def _read(value: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(value["extra"][MARK], kind)
    except (msgspec.ValidationError, TypeError, ValueError):
        return None
