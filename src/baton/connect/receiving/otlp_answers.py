"""What an OTLP client is answered: success, success in part, or why not, in the encoding that it asked in.

Source: the OTLP/HTTP specification 1.x. A failure is a google.rpc.Status; 400 is never retried, 503 is.
"""

from __future__ import annotations

import msgspec

_REJECTED = {"traces": "rejectedSpans", "logs": "rejectedLogRecords", "metrics": "rejectedDataPoints"}
_CODES = {400: 3, 403: 7, 404: 5, 405: 12, 408: 4, 411: 3, 413: 8, 415: 3, 503: 14}
_INTERNAL = 13


def accepted(signal: str, rejected: int, why: str, *, is_json: bool) -> bytes:
    """The body of a 200. Nothing rejected: an empty message."""
    if not rejected and not why:
        return b"{}" if is_json else b""
    if is_json:
        partial = {_REJECTED[signal]: str(rejected), "errorMessage": why}
        return msgspec.json.encode({"partialSuccess": partial})
    partial_success = _number(1, rejected) + _bytes(2, why.encode())
    return _bytes(1, partial_success)


def refused(status: int, why: str, *, is_json: bool) -> bytes:
    """The body of an error."""
    code = _CODES.get(status, _INTERNAL)
    if is_json:
        return msgspec.json.encode({"code": code, "message": why})
    return _number(1, code) + _bytes(2, why.encode())


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
