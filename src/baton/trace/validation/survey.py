"""The survey's JSON form: at least as strict as its schema, and with types for the names Baton adds.

Source: trace_schema.json of arXiv 2605.02801. Events may have any further property there; one with
the name of a field of ours has to be of that field's type. A null is a value, not an absence.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import NODEFAULT, MsgspecError, Struct, ValidationError, convert, defstruct, field, structs
from msgspec.json import Decoder

from baton.errors import FormatError
from baton.trace.formats.survey.survey_read import from_own_survey, from_survey
from baton.trace.records import Edge, Event
from baton.trace.trace import End, Header
from baton.trace.validation.fields import field_faults
from baton.trace.validation.native import Close
from baton.trace.validation.parts import Parts
from baton.trace.validation.problem import Found, shown
from baton.trace.validation.ranges import faults_in
from baton.trace.validation.shape import report_fields
from baton.trace.vocabulary import EdgeType, Topology

_REQUIRED_COSTS = ("tokens", "wall_clock_s")
# Optional there, but never null.
_SURVEY_TYPES: dict[str, type] = {
    **dict.fromkeys(("role", "from_", "to", "tool", "content_ref"), str),
    "trusted": bool,
}


def _event_fields() -> list[Any]:
    fields: list[Any] = []
    for info in structs.fields(Event):
        kind = _SURVEY_TYPES.get(info.name, info.type)
        if info.name == "seq":
            fields.append(("seq", int | None, None))
        elif info.default is not NODEFAULT:
            fields.append((info.name, kind, field(default=info.default, name=info.encode_name)))
        elif info.default_factory is NODEFAULT:
            fields.append((info.name, kind))
    # `extra` is gone: what it holds are properties of their own here. The checks read one of them.
    return [*fields, ("budget", Any, None)]


_SurveyEvent: Any = defstruct(
    "SurveyEvent",
    _event_fields(),
    kw_only=True,
    frozen=True,
    namespace={"extra": property(lambda event: {"budget": event.budget})},
)


class _SurveyEdge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    src: str
    dst: str
    type: EdgeType


class _SurveyTrace(Struct, kw_only=True, forbid_unknown_fields=True):
    trace_id: str
    task_id: str
    events: list[Any]
    edges: list[Any]
    rewards: dict[str, float]
    costs: dict[str, float]
    system: str = ""
    topology: Topology = "unknown"
    metrics: dict[str, float] = field(default_factory=dict)


class _Typed(_SurveyTrace, kw_only=True, forbid_unknown_fields=True):
    events: list[_SurveyEvent]
    edges: list[_SurveyEdge]


_decoder = Decoder(_Typed)


def read_survey(document: bytes, found: Found, close: Close) -> None:
    """Hand the document's trace to `close`. Raises `FormatError` where it is none at all."""
    refused: FormatError | None = None
    if b'"baton_version"' in document:
        own = from_own_survey(document)
        if own is not None:
            close(Parts.of_trace(own, found), True)
            return
        content = _object(document)
        if _is_own(content):
            try:
                trace = from_survey(content)
            except FormatError as error:
                refused = error
            else:
                close(Parts.of_trace(trace, found), True)
                return
    _read_foreign(document, found, close)
    if refused is not None and not found.counts:
        raise refused


def _is_own(content: dict[str, Any]) -> bool:
    """Whether Baton wrote this file: then calls and payloads ride on its first event."""
    events = content.get("events")
    first = events[0] if isinstance(events, list) and events else None
    return isinstance(first, dict) and any(
        name.startswith("baton") and isinstance(value, dict) and "baton_version" in value
        for name, value in first.items()
    )


def _read_foreign(document: bytes, found: Found, close: Close) -> None:
    parts = Parts(found)
    parts.calls_known = False
    trace: Any
    try:
        trace = _decoder.decode(document)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        trace = _loosely(_object(document), parts)
    else:
        found.trace_id = trace.trace_id
    parts.header = Header(trace_id=trace.trace_id, task_id=trace.task_id)
    parts.events, parts.edges = trace.events, trace.edges
    parts.end = End(costs=trace.costs, metrics=trace.metrics)
    given = [event.seq is not None for event in parts.events]
    parts.seq_given, parts.some_seq_given = all(given), any(given) and not all(given)
    if fault := faults_in(End, "metrics", trace.rewards):
        code, was, expected = fault
        found.add(code, "trace", was, expected, field="rewards")
    for name in _REQUIRED_COSTS:
        if name not in trace.costs:
            found.add("shape/missing-field", "trace", "nothing", "a number", field=f"costs.{name}")
    close(parts, True)


def _loosely(content: dict[str, Any], parts: Parts) -> _SurveyTrace:
    """What is good in a document that does not decode as a whole, once the rest is reported."""
    found = parts.found
    trace_id = content.get("trace_id")
    found.trace_id = trace_id if isinstance(trace_id, str) else None
    for name, (code, was, expected) in field_faults(_SurveyTrace, content):
        found.add(code, "trace", was, expected, field=name)
        parts.lost |= name in ("events", "edges")
    good: dict[str, Any] = {
        "trace_id": "?",
        "task_id": "?",
        "events": [],
        "edges": [],
        "rewards": {},
        "costs": dict.fromkeys(_REQUIRED_COSTS, 0.0),
    }
    for info in structs.fields(_SurveyTrace):
        if info.name in content and isinstance(convertible := content[info.name], str | list | dict):
            try:
                good[info.name] = convert(convertible, info.type)
            except ValidationError:
                continue
    trace = _SurveyTrace(**good)
    trace.events = _good_records("event", _SurveyEvent, trace.events, parts)
    trace.edges = _good_records("edge", _SurveyEdge, trace.edges, parts)
    return trace


def _good_records(name: str, kind: Any, records: list[Any], parts: Parts) -> list[Any]:
    good, places = [], []
    for index, given in enumerate(records):
        try:
            good.append(convert(given, kind))
            places.append(index)
        except ValidationError as error:
            parts.num_broken[name] = parts.num_broken.get(name, 0) + 1
            if not isinstance(given, dict):
                parts.found.add("shape/not-an-object", name, shown(given), "a JSON object", position=index)
                continue
            id_ = given.get("id") if name == "event" and isinstance(given.get("id"), str) else None
            if id_ is not None:
                parts.broken.add(id_)
            report_fields(
                parts.found,
                kind,
                given,
                record=f"{name} {id_}" if id_ else name,
                event_id=id_,
                position=index,
                error=str(error),
                ranges_of=Event if name == "event" else Edge,
                closed=name == "edge",
            )
    parts.lines[name] = places
    return good


def _object(document: bytes) -> dict[str, Any]:
    try:
        content = json.loads(document.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(
            f"it is not UTF-8: byte 0x{document[error.start]:02x} at offset {error.start}."
        ) from None
    except RecursionError:
        raise FormatError("it is nested too deeply to be a trace.") from None
    except ValueError as error:
        if str(error).startswith("Extra data"):
            raise FormatError(
                "it holds JSON records that have no kind; expected one JSON object, or a first line such as "
                '{"kind":"trace","version":1,"trace_id":"…","task_id":"…"}'
            ) from None
        raise FormatError(f"it is not JSON, or it is cut off: {error}.") from None
    if not isinstance(content, dict):
        raise FormatError(
            f"it holds {shown(content)}; expected a JSON object with trace_id, events and edges."
        )
    return content
