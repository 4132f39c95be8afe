"""A span, however it was written down: the one form that every OTLP file and request is turned into.

Ids are lower-case hex; times are nanoseconds since 1970, 0 where nobody gives one. Attribute values are plain Python
values: text, numbers, truths, lists, maps.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class SpanEvent(Struct, gc=False):
    """Something that happened inside a span, or a log record that names one."""

    name: str
    time_ns: int
    attributes: dict[str, Any]


class OtelSpan(Struct):
    """One operation with its place in the tree."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[SpanEvent] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    """(trace id, span id) of what it depends on beside its parent."""
    failed: bool = False
    message: str = ""
    """What its status says."""
    resource: dict[str, Any] = field(default_factory=dict)
    """Of the program; shared by its spans."""
    scope: str = ""
    """Which instrumentation made it, with its version."""
    at: str = ""
    """Where it stood, for a person."""


class LogRecord(Struct):
    """An event of a span that came by itself, through the logs."""

    trace_id: str
    span_id: str
    event: SpanEvent
    at: str = ""


class Unreadable(Exception):
    """Bytes that are no request of the kind that was expected; the message says what was found."""
