"""Spans as OTLP: a request in JSON or in protobuf, as a file or sent to an endpoint."""

from __future__ import annotations

import http.client
import struct
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from baton.connect.readers.otlp.span import OtelSpan, SpanEvent
from baton.connect.receiving.otlp_answers import varint
from baton.connect.writers.otlp_spans import spans_of_trace
from baton.errors import UsageError
from baton.trace.trace import Trace

_SECONDS = 60.0


def encode_otlp_json(traces: Iterable[Trace]) -> Iterator[bytes]:
    """JSON Lines, a request for each trace, as the collector's file exporter writes them."""
    for trace in traces:
        yield msgspec.json.encode(json_request(spans_of_trace(trace))) + b"\n"


def encode_otlp_protobuf(traces: Iterable[Trace]) -> Iterator[bytes]:
    """Requests behind their lengths, one for each trace."""
    for trace in traces:
        body = protobuf_request(spans_of_trace(trace))
        yield varint(len(body)) + body


def send(trace: Trace, endpoint: str, headers: dict[str, str] | None = None) -> int:
    """POST a trace to an OTLP endpoint such as http://127.0.0.1:6006/v1/traces; the number of spans sent."""
    address = urlsplit(endpoint)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise UsageError(f"the endpoint is {endpoint!r}; expected such as http://127.0.0.1:4318/v1/traces")
    spans = spans_of_trace(trace)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname, address.port, timeout=_SECONDS)
    path = (address.path if address.path not in ("", "/") else "/v1/traces") + (
        f"?{address.query}" if address.query else ""
    )
    try:
        connection.request(
            "POST",
            path,
            protobuf_request(spans),
            {"Content-Type": "application/x-protobuf", **(headers or {})},
        )
        answer = connection.getresponse()
        said = answer.read(2000)
    except OSError as error:
        raise UsageError(f"{endpoint} cannot be reached: {error}. Is it running?") from None
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        shown = said.decode("utf-8", "replace").strip() or answer.reason
        raise UsageError(f"{endpoint} answered {answer.status}: {shown[:200]}. Nothing was sent.")
    return len(spans)


def json_request(spans: list[OtelSpan]) -> dict[str, Any]:
    """An ExportTraceServiceRequest; ids in hex, 64-bit numbers as text, as OTLP's JSON has them."""
    resource = spans[0].resource if spans else {}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": json_pairs(resource)},
                "scopeSpans": [
                    {
                        "scope": {"name": spans[0].scope if spans else ""},
                        "spans": list(map(_json_span, spans)),
                    }
                ],
            }
        ]
    }


def _json_span(span: OtelSpan) -> dict[str, Any]:
    made: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": json_pairs(span.attributes),
        "status": {"code": 2, "message": span.message} if span.failed else {},
    }
    if span.parent_id is not None:
        made["parentSpanId"] = span.parent_id
    if span.events:
        made["events"] = list(map(json_event, span.events))
    if span.links:
        made["links"] = [{"traceId": trace_id, "spanId": span_id} for trace_id, span_id in span.links]
    return made


def json_event(event: SpanEvent) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.time_ns),
        "name": event.name,
        "attributes": json_pairs(event.attributes),
    }


def json_pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP's JSON has them."""
    return [{"key": key, "value": _json_value(value)} for key, value in attributes.items()]


def _json_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_json_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": json_pairs(value)}}
    if value is None:
        return {}
    return {"stringValue": _clean(value)}


def _clean(value: Any) -> str:
    """Text that can be written as UTF-8."""
    return str(value).encode("utf-8", "replace").decode()


def protobuf_request(spans: list[OtelSpan]) -> bytes:
    """The same in protobuf's wire format."""
    resource = b"".join(
        _field(1, _pair(key, value)) for key, value in (spans[0].resource if spans else {}).items()
    )
    scope = _field(1, (spans[0].scope if spans else "").encode())
    scoped = _field(1, scope) + b"".join(_field(2, _protobuf_span(span)) for span in spans)
    return _field(1, _field(1, resource) + _field(2, scoped))


def _protobuf_span(span: OtelSpan) -> bytes:
    made = [
        _field(1, bytes.fromhex(span.trace_id)),
        _field(2, bytes.fromhex(span.span_id)),
        b"" if span.parent_id is None else _field(4, bytes.fromhex(span.parent_id)),
        _field(5, _clean(span.name).encode()),
        _number(6, 1),
        _fixed(7, span.start_ns),
        _fixed(8, span.end_ns),
        *(_field(9, _pair(key, value)) for key, value in span.attributes.items()),
        *(_field(11, _protobuf_event(event)) for event in span.events),
        *(
            _field(13, _field(1, bytes.fromhex(one)) + _field(2, bytes.fromhex(two)))
            for one, two in span.links
        ),
    ]
    if span.failed:
        made.append(_field(15, _field(2, _clean(span.message).encode()) + _number(3, 2)))
    return b"".join(made)


def _protobuf_event(event: SpanEvent) -> bytes:
    pairs = b"".join(_field(3, _pair(key, value)) for key, value in event.attributes.items())
    return _fixed(1, event.time_ns) + _field(2, _clean(event.name).encode()) + pairs


def _pair(key: str, value: Any) -> bytes:
    return _field(1, _clean(key).encode()) + _field(2, _protobuf_value(value))


def _protobuf_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return varint(2 << 3) + varint(int(value))
    if isinstance(value, int):
        return varint(3 << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)
    if isinstance(value, float):
        return varint(4 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return _field(5, b"".join(_field(1, _protobuf_value(item)) for item in value))
    return _field(1, _clean(value).encode())


def _field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def _fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)
