"""Spans from JSON: requests as the collector and SDKs write them, and the forms in which people keep single spans.

- a request: `{"resourceSpans": [...]}` or `{"resourceLogs": [...]}` (also snake_case, Tempo's `batches`, and ids in
  base64);
- one span: the SDK's console exporter and `ReadableSpan.to_json()`, and Phoenix's rows, which are near to it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from baton.connect.readers.otlp.protobuf import with_body
from baton.connect.readers.otlp.span import LogRecord, OtelSpan, SpanEvent, Unreadable

_GROUPS = ("resourceSpans", "resource_spans", "batches")
_LOGS = ("resourceLogs", "resource_logs")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_HEX = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16})?")
_DIGITS = frozenset("0123456789abcdef")


def spans_of(value: Any, at: str, lost: list[str] | None = None) -> Iterator[OtelSpan | LogRecord]:
    """Everything in one JSON value; raises `Unreadable` where it is none of the forms.

    `lost`: one span of a request that cannot be read goes there, with what is wrong, and the others are given.
    """
    if isinstance(value, list):
        for place, item in enumerate(value, start=1):
            yield from spans_of(item, f"{at}[{place}]", lost)
        return
    if not isinstance(value, dict):
        raise Unreadable(f"{type(value).__name__} where an object is expected")
    inner = value.get("trace") or value.get("data")
    if inner is not None and "name" not in value and not any(name in value for name in (*_GROUPS, *_LOGS)):
        yield from spans_of(inner, at, lost)
        return
    groups, logs = _first(value, _GROUPS), _first(value, _LOGS)
    if groups is not None or logs is not None:
        for group in _objects(groups or [], "resourceSpans"):
            yield from _of_resource(group, at, lost)
        for group in _objects(logs or [], "resourceLogs"):
            yield from _logs_of_resource(group, at)
    elif "name" not in value and isinstance(
        value.get("spans"), list
    ):  # a run that holds its spans (any-agent)
        yield from spans_of(value["spans"], at, lost)
    elif "name" in value and ("context" in value or "attributes" in value or "parent_id" in value):
        yield _single(value, at)
    elif not any(name in value for name in ("partialSuccess", "resourceMetrics")):
        shown = ", ".join(list(value)[:4]) or "nothing"
        raise Unreadable(f"an object with {shown} where resourceSpans or a span is expected")


def _of_resource(group: dict[str, Any], at: str, lost: list[str] | None) -> Iterator[OtelSpan]:
    resource = _attributes(_object(group.get("resource"), "resource").get("attributes"))
    for scoped in _objects(_first(group, _SCOPES) or [], "scopeSpans"):
        named = _object(scoped.get("scope") or scoped.get("instrumentationLibrary"), "scope")
        scope = " ".join(str(named[key]) for key in ("name", "version") if named.get(key))
        spans = scoped.get("spans") or []
        for span in spans if lost is not None and isinstance(spans, list) else _objects(spans, "spans"):
            try:
                yield _span(_object(span, "span"), resource, scope, at)
            except Unreadable as error:
                if lost is None:
                    raise
                lost.append(str(error))


def _span(value: dict[str, Any], resource: dict[str, Any], scope: str, at: str) -> OtelSpan:
    get = value.get
    span_id = hex_id(get("spanId") or get("span_id"))
    trace_id = hex_id(get("traceId") or get("trace_id"))
    status = _object(get("status"), "status")
    links = get("links")
    events = get("events")
    return OtelSpan(
        trace_id,
        span_id,
        hex_id(get("parentSpanId") or get("parent_span_id")) or None,
        str(get("name") or ""),
        _nanos(get("startTimeUnixNano") or get("start_time_unix_nano")),
        _nanos(get("endTimeUnixNano") or get("end_time_unix_nano")),
        _attributes(get("attributes")),
        [_event(event) for event in _objects(events, "events")] if events else [],
        [_link(link) for link in _objects(links, "links")] if links else [],
        status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
        str(status.get("message") or ""),
        resource,
        scope,
        f"{at} span {span_id}",
    )


def _event(value: dict[str, Any]) -> SpanEvent:
    time = value.get("timeUnixNano") or value.get("time_unix_nano")
    return SpanEvent(str(value.get("name") or ""), _nanos(time), _attributes(value.get("attributes")))


def _link(value: dict[str, Any]) -> tuple[str, str]:
    return hex_id(value.get("traceId") or value.get("trace_id")), hex_id(
        value.get("spanId") or value.get("span_id")
    )


def _logs_of_resource(group: dict[str, Any], at: str) -> Iterator[LogRecord]:
    for scoped in _objects(_first(group, ("scopeLogs", "scope_logs")) or [], "scopeLogs"):
        for value in _objects(_first(scoped, ("logRecords", "log_records")) or [], "logRecords"):
            ids = [hex_id(_first(value, names)) for names in (("traceId", "trace_id"), ("spanId", "span_id"))]
            if not all(ids):
                continue
            time = _nanos(_first(value, ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano")))
            name = str(_first(value, ("eventName", "event_name")) or "")
            event = SpanEvent(name, time, _attributes(value.get("attributes")))
            yield with_body(LogRecord(ids[0], ids[1], event, at), _any(value.get("body")))


def _single(value: dict[str, Any], at: str) -> OtelSpan:
    """`ReadableSpan.to_json()` and what is like it: attributes are a map, times are ISO texts."""
    context = value.get("context") or {}
    if not isinstance(context, dict):
        raise Unreadable("a span whose context is no object")
    span_id = hex_id(context.get("span_id") or value.get("span_id") or value.get("id"))
    if not span_id:
        raise Unreadable("a span without span_id")
    attributes = value.get("attributes") or {}
    if not isinstance(attributes, dict):
        attributes = _attributes(attributes)
    elif any(isinstance(attributes.get(name), dict) for name in ("openinference", "gen_ai", "llm")):
        attributes = dict(_flattened("", attributes))
    if "openinference.span.kind" not in attributes and (kind := value.get("span_kind")):
        attributes = {**attributes, "openinference.span.kind": kind}
    status = value.get("status") or value.get("status_code") or {}
    code = status.get("status_code") if isinstance(status, dict) else status
    said = status.get("description") if isinstance(status, dict) else value.get("status_message")
    resource = value.get("resource") or {}
    parent = value.get("parent")
    parent = parent if isinstance(parent, dict) else {}
    return OtelSpan(
        hex_id(context.get("trace_id") or value.get("trace_id")),
        span_id,
        hex_id(value.get("parent_id") or value.get("parent_span_id") or parent.get("span_id")) or None,
        str(value.get("name") or ""),
        _iso(value.get("start_time")),
        _iso(value.get("end_time")),
        attributes,
        [
            SpanEvent(str(one.get("name") or ""), _iso(one.get("timestamp")), one.get("attributes") or {})
            for one in _objects(value.get("events") or [], "events")
        ],
        [
            (hex_id(link["context"].get("trace_id")), hex_id(link["context"].get("span_id")))
            for link in _objects(value.get("links") or [], "links")
            if isinstance(link.get("context"), dict)
        ],
        str(code).upper() == "ERROR",
        str(said or ""),
        resource.get("attributes") or {} if isinstance(resource, dict) else {},
        "",
        f"{at} span {span_id}",
    )


def _flattened(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Phoenix gives attributes as a tree; conventions name them by paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for place, inner in enumerate(value):
            yield from _flattened(f"{prefix}.{place}", inner)
    else:
        yield prefix, value


def _object(value: Any, name: str) -> dict[str, Any]:
    """An object that may be absent."""
    if not value:
        return {}
    if not isinstance(value, dict):
        raise Unreadable(f"a {name} that is no object")
    return value


def _attributes(pairs: Any) -> dict[str, Any]:
    if not pairs:
        return {}
    if isinstance(pairs, dict):
        return pairs
    found: dict[str, Any] = {}
    try:
        for pair in pairs:
            value = pair["value"]
            text = value.get("stringValue")
            found[str(pair["key"])] = text if text is not None else _any(value)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        raise Unreadable("attributes that are no list of {key, value}") from None
    return found


def _any(value: Any) -> Any:
    """An AnyValue as a plain value."""
    if not isinstance(value, dict):
        return value
    for key, inner in value.items():
        kind = key.replace("_", "").lower()
        if kind == "intvalue":
            return int(inner)
        if kind == "arrayvalue":
            return [_any(item) for item in (inner or {}).get("values") or []]
        if kind == "kvlistvalue":
            return {pair["key"]: _any(pair.get("value")) for pair in (inner or {}).get("values") or []}
        if kind in ("stringvalue", "boolvalue", "doublevalue", "bytesvalue"):
            return inner
    return None


def hex_id(value: Any) -> str:
    """An id in lower-case hex, whatever it was written in; empty where there is none."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:  # as the SDK holds them
        return f"{value:016x}" if value < 1 << 64 else f"{value:032x}"
    if not isinstance(value, str) or not value:
        return ""
    if _HEX.fullmatch(value):
        return value if value.strip("0") else ""
    plain = value.lower().removeprefix("0x")
    if _DIGITS.issuperset(plain):
        return plain
    try:  # as protobuf's own JSON has bytes
        return base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        return plain


def _nanos(value: Any) -> int:
    try:
        found = int(value or 0)
    except (TypeError, ValueError, OverflowError):
        raise Unreadable(f"a time {value!r:.40} where nanoseconds are expected") from None
    return _within(found)


def _within(nanos: int) -> int:
    """OTLP's times are 64-bit: what is beyond is no time."""
    if not 0 <= nanos < 2**64:
        raise Unreadable("a time that is no number of 64 bits")
    return nanos


def _iso(value: Any) -> int:
    if not value:
        return 0
    if isinstance(value, int | float):
        return _nanos(value if value > 1e15 else value * 1e9)
    try:
        moment = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError):
        raise Unreadable(f"a time {value!r:.40} where an ISO date is expected") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return _within((since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000)


def _objects(values: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Unreadable(f"{name} that is no list of objects")
    return values


def _first(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((value[name] for name in names if name in value), None)


def decode_json(text: bytes) -> Any:
    """A JSON value; `Unreadable` says where it breaks."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"no JSON: {error}") from None
