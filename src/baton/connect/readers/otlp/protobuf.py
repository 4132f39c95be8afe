"""OTLP's protobuf, decoded by hand: `ExportTraceServiceRequest` and `ExportLogsServiceRequest`, whole or delimited.

Only what a trace needs is read; other fields are stepped over, as protobuf wants it. So no package is needed, and a
request from a newer SDK is no error. What does not add up raises `Unreadable` and never gives half a span.

Source: opentelemetry-proto 1.x, `trace.proto`, `logs.proto`, `common.proto`; the wire format of protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from baton.connect.readers.otlp.span import LogRecord, OtelSpan, SpanEvent, Unreadable

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DEEPEST = 64  # of values inside values; more is no attribute but an attack
_unpack_double = struct.Struct("<d").unpack_from
_unpack_u64 = struct.Struct("<Q").unpack_from


def decode_traces(body: bytes, at: str = "", lost: list[str] | None = None) -> list[OtelSpan]:
    """The spans of one request; one whose ids are missing has empty ones.

    `lost`: one that cannot be read goes there, with what is wrong, and the others are given.
    """
    spans: list[OtelSpan] = []
    for number, group in _messages(body, "a request"):
        if number == 1:
            _resource_spans(group, spans, at, lost)
    return spans


def decode_logs(body: bytes, at: str = "") -> list[LogRecord]:
    """The log records of one request that belong to a span; the others tell nothing about a trace."""
    records: list[LogRecord] = []
    for number, group in _messages(body, "a request"):
        if number == 1:
            for inner, part in _messages(group, "resource_logs"):
                if inner == 2:
                    records += (
                        _log_record(record, at) for one, record in _messages(part, "scope_logs") if one == 2
                    )
    return [record for record in records if record.trace_id and record.span_id]


def split_delimited(data: bytes) -> tuple[list[bytes], int]:
    """The messages of a file in which each stands behind its length, and the bytes at the end that are none."""
    found: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        try:
            size, start = _varint(data, at)
        except Unreadable:
            break
        if size == 0 or start + size > end or data[start] != 0x0A:
            break
        found.append(data[start : start + size])
        at = start + size
    return found, end - at


def _resource_spans(group: bytes, spans: list[OtelSpan], at: str, lost: list[str] | None) -> None:
    resource: dict[str, Any] = {}
    scopes: list[bytes] = []
    for number, part in _messages(group, "resource_spans"):
        if number == 1:
            resource = _attributes(part, 1)
        elif number in (2, 1000):  # 1000: instrumentation_library_spans, its name before 2022
            scopes.append(part)
    for part in scopes:
        scope = ""
        own: list[bytes] = []
        for number, value in _messages(part, "scope_spans"):
            if number == 1:
                scope = _scope(value)
            elif number == 2:
                own.append(value)
        for value in own:
            try:
                spans.append(_span(value, resource, scope, at))
            except Unreadable as error:
                if lost is None:
                    raise
                lost.append(str(error))


def _scope(data: bytes) -> str:
    named = {number: value for number, value in _messages(data, "scope") if number in (1, 2)}
    return " ".join(_text(named[number]) for number in (1, 2) if named.get(number))


def _span(data: bytes, resource: dict[str, Any], scope: str, at: str) -> OtelSpan:
    span = OtelSpan("", "", None, "", 0, 0, {}, resource=resource, scope=scope)
    for number, value in _fields(data):
        if number == 9:
            key, found = _key_value(_checked(value, "span.attributes"))
            span.attributes[key] = found
        elif number in (7, 8):
            if not isinstance(value, int):
                raise Unreadable("span: a time that is no number")
            if number == 7:
                span.start_ns = value
            else:
                span.end_ns = value
        elif number == 1:
            span.trace_id = _id(value, "trace_id")
        elif number == 2:
            span.span_id = _id(value, "span_id")
        elif number == 4:
            span.parent_id = _id(value, "parent_span_id") or None
        elif number == 5:
            span.name = _text(_checked(value, "name"))
        elif number == 11:
            span.events.append(_event(_checked(value, "span.events")))
        elif number == 13:
            span.links.append(_link(_checked(value, "span.links")))
        elif number == 15:
            span.failed, span.message = _status(_checked(value, "span.status"))
    span.at = f"{at} span {span.span_id}".strip()
    return span


def _event(data: bytes) -> SpanEvent:
    event = SpanEvent("", 0, {})
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            event.time_ns = value
        elif number == 2:
            event.name = _text(_checked(value, "event.name"))
        elif number == 3:
            key, found = _key_value(_checked(value, "event.attributes"))
            event.attributes[key] = found
    return event


def _link(data: bytes) -> tuple[str, str]:
    ids = {number: value for number, value in _messages(data, "link") if number in (1, 2)}
    return ids.get(1, b"").hex(), ids.get(2, b"").hex()


def _status(data: bytes) -> tuple[bool, str]:
    failed, message = False, ""
    for number, value in _fields(data):
        if number == 2:
            message = _text(_checked(value, "status.message"))
        elif number == 3:
            failed = value == 2
    return failed, message


def _log_record(data: bytes, at: str) -> LogRecord:
    record = LogRecord("", "", SpanEvent("", 0, {}), at)
    body: Any = None
    for number, value in _fields(data):
        if number in (1, 11) and isinstance(value, int):
            record.event.time_ns = record.event.time_ns or value
        elif number == 5:
            body = _any_value(_checked(value, "log.body"), 0)
        elif number == 6:
            key, found = _key_value(_checked(value, "log.attributes"))
            record.event.attributes[key] = found
        elif number == 9:
            record.trace_id = _id(value, "trace_id")
        elif number == 10:
            record.span_id = _id(value, "span_id")
        elif number == 12:
            record.event.name = _text(_checked(value, "event_name"))
    return with_body(record, body)


def with_body(record: LogRecord, body: Any) -> LogRecord:
    """A log record's body is where some instrumentations put what others put into attributes."""
    attributes = record.event.attributes
    if isinstance(body, dict):
        for key, value in body.items():
            attributes.setdefault(key, value)
    elif body is not None:
        attributes.setdefault("body", body)
    record.event.name = record.event.name or str(attributes.get("event.name", ""))
    return record


def _attributes(data: bytes, wanted: int) -> dict[str, Any]:
    return dict(_key_value(value) for number, value in _messages(data, "attributes") if number == wanted)


def _key_value(data: bytes, depth: int = 0) -> tuple[str, Any]:
    if (said := _key_and_text(data)) is not None:
        return said
    key, found = "", None
    for number, value in _fields(data):
        if number == 1:
            key = _text(_checked(value, "key"))
        elif number == 2:
            found = _any_value(_checked(value, "value"), depth)
    return key, found


def _key_and_text(data: bytes) -> tuple[str, str] | None:
    """A short key with a text behind it, as most attributes are, in one look; None: it is written otherwise."""
    end = len(data)
    if end < 2 or data[0] != 0x0A or (middle := 2 + data[1]) > min(end - 4, 0x81) or data[middle] != 0x12:
        return None
    size, start = data[middle + 1], middle + 2
    if size >= 0x80:
        size, start = _varint(data, middle + 1)
    if start + size != end or size < 2 or data[start] != 0x0A:
        return None
    size, begin = data[start + 1], start + 2
    if size >= 0x80:
        size, begin = _varint(data, start + 1)
    return (_text(data[2:middle]), _text(data[begin:])) if begin + size == end else None


def _any_value(data: bytes, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Unreadable(f"a value {_DEEPEST} levels deep")
    found: Any = None
    for number, value in _fields(data):
        if number == 1:
            found = _text(_checked(value, "string_value"))
        elif number == 2:
            found = bool(value)
        elif number == 3 and isinstance(value, int):
            found = value - (1 << 64) if value >= 1 << 63 else value
        elif number == 4 and isinstance(value, int):
            found = _unpack_double(value.to_bytes(8, "little"))[0]
        elif number == 5:
            parts = _messages(_checked(value, "array_value"), "array_value")
            found = [_any_value(part, depth + 1) for one, part in parts if one == 1]
        elif number == 6:
            parts = _messages(_checked(value, "kvlist_value"), "kvlist_value")
            found = dict(_key_value(part, depth + 1) for one, part in parts if one == 1)
        elif number == 7:
            found = _checked(value, "bytes_value").hex()
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _id(value: int | bytes, name: str) -> str:
    """In hex; empty where it is all zeros, which is how none is written."""
    found = _checked(value, name)
    return found.hex() if any(found) else ""


def _checked(value: int | bytes, name: str) -> bytes:
    if isinstance(value, int):
        raise Unreadable(f"{name}: a number where bytes are expected")
    return value


def _messages(data: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Fields that are messages or text; numbers are stepped over."""
    for number, value in _fields(data):
        if isinstance(value, bytes):
            yield number, value
        elif number == 1:
            raise Unreadable(f"{name}: a number where a message is expected")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: an int for varints and fixed numbers, bytes for the rest."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == _BYTES:
            if at < end and data[at] < 0x80:
                size = data[at]
                at += 1
            else:
                size, at = _varint(data, at)
            stop = at + size
            if stop > end:
                raise Unreadable(f"a field of {size:,} bytes where {end - at:,} are left")
            yield tag >> 3, data[at:stop]
            at = stop
        elif kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == _FIXED64:
            if at + 8 > end:
                raise Unreadable("a number that is cut off")
            yield tag >> 3, _unpack_u64(data, at)[0]
            at += 8
        elif kind == _FIXED32:
            if at + 4 > end:
                raise Unreadable("a number that is cut off")
            yield tag >> 3, int.from_bytes(data[at : at + 4], "little")
            at += 4
        else:
            raise Unreadable(f"wire type {kind}, which OTLP does not use")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise Unreadable("a number that is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise Unreadable("a number of more than ten bytes")
