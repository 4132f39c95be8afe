"""Files of spans: which they are, and what is in them.

JSON Lines (the collector's file exporter), one JSON value, values printed one after the other (the SDK's console
exporter), protobuf (one request, or each behind its length), all of it perhaps packed with gzip. A folder is all files
in it that are one of these: the parts of one trace may lie in several.
"""

from __future__ import annotations

import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.json_spans import decode_json, spans_of
from baton.connect.readers.otlp.protobuf import decode_logs, decode_traces, split_delimited
from baton.connect.readers.otlp.span import LogRecord, OtelSpan, Unreadable
from baton.errors import CorruptError, UsageError

LOST = "a span that cannot be read"
_LOOK_BYTES = 65_536
_MOST_VALUE_BYTES = 512 * 2**20
_MARKS = (b'"resourceSpans"', b'"resource_spans"', b'"resourceLogs"', b'"resource_logs"', b'"scopeSpans"')
_SPAN_MARKS = (b'"span_id"', b'"trace_id"', b'"attributes"')
_KEPT_MARKS = (b'"parent_id"', b'"attributes"', b'"name"')
_MARKED = re.compile(BOM_UTF8 + rb"\s*[{\[]")
"""JSON behind a byte order mark, which some editors put there."""
_SIDE_FILES = (".tmp", ".lock", "-wal", "-shm", ".db")


def is_otlp(place: Path) -> bool:
    """Whether a file, or some file of a folder, holds spans."""
    if place.is_dir():
        return any(is_otlp(path) for path in sorted(place.iterdir())[:50] if path.is_file())
    if not place.is_file() or place.name.endswith(_SIDE_FILES):
        return False
    try:
        with _opened(place) as file:
            head = file.read(_LOOK_BYTES)
    except (OSError, EOFError, zlib.error):
        return False
    return _is_json(head) or _is_protobuf(head)


def files_of(place: Path) -> list[Path]:
    if not place.exists():
        raise UsageError(f"there is no {place}. Give a file or folder of spans.")
    if place.is_dir():
        return [path for path in sorted(place.iterdir()) if path.is_file() and is_otlp(path)]
    return [place]


def read_spans(path: Path, report: ImportReport) -> Iterator[OtelSpan | LogRecord]:
    """Everything that can be read of a file. An entry that cannot is told to the report."""
    try:
        with _opened(path) as file:
            head = file.read(_LOOK_BYTES)
        if _is_protobuf(head) and not _is_json(head):
            yield from _read_protobuf(path, report)
        else:
            yield from _read_json(path, report)
    except PermissionError:
        raise UsageError(f"{path} may not be read by you. Give another file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        report.read()
        report.skip("the end of a packed file is missing or damaged", str(path))


def _opened(path: Path) -> BufferedIOBase:
    file = path.open("rb")
    if file.read(2) == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")
    file.seek(0)
    if not _MARKED.match(file.read(64)):
        file.seek(0)
    else:
        file.seek(len(BOM_UTF8))
    return file


def _is_json(head: bytes) -> bool:
    start = head.lstrip()[:1]
    if start not in (b"{", b"["):
        return False
    if any(mark in head for mark in _MARKS) or all(mark in head for mark in _SPAN_MARKS):
        return True
    return all(mark in head for mark in _KEPT_MARKS) and (b"gen_ai." in head or b"openinference." in head)


def _is_protobuf(head: bytes) -> bool:
    """A request begins with its first group of spans, and that with a resource or a scope."""
    if len(head) < 8:
        return False
    for start in _starts(head):
        if start < len(head) - 4 and head[start] == 0x0A:
            inner = _after_varint(head, start + 1)
            if inner < len(head) and head[inner] in (0x0A, 0x12):
                # Ids of a span or a log record: their tags with their lengths.
                return (b"\x0a\x10" in head and b"\x12\x08" in head) or (
                    b"\x4a\x10" in head and b"\x52\x08" in head
                )
    return False


def _starts(head: bytes) -> tuple[int, int]:
    """Where a request would begin: at once, or behind its length."""
    return 0, _after_varint(head, 0)


def _after_varint(data: bytes, at: int) -> int:
    while at < len(data) and data[at] >= 0x80:
        at += 1
    return at + 1


def _read_protobuf(path: Path, report: ImportReport) -> Iterator[OtelSpan | LogRecord]:
    with _opened(path) as file:
        data = file.read()
    parts, torn = split_delimited(data)
    whole = [data] if not parts or torn else []
    try:  # one request may look like several that are delimited: the one that decodes is right
        yield from _decoded(whole, path, report)
        if whole:
            return
    except Unreadable as error:
        if not parts:
            report.read()
            report.skip("a request that is no OTLP protobuf", f"{path.name}: {error}")
            return
    if torn:
        report.read()
        report.skip("the end of the file is cut off", f"{path.name}: its last {torn:,} bytes")
    for place, part in enumerate(parts, start=1):
        try:
            yield from _decoded([part], path, report, place)
        except Unreadable as error:
            report.read()
            report.skip("a request that is no OTLP protobuf", f"{path.name}:{place}: {error}")


def _decoded(
    bodies: list[bytes], path: Path, report: ImportReport, place: int = 0
) -> Iterator[OtelSpan | LogRecord]:
    at = f"{path.name}:{place}" if place else path.name
    for body in bodies:
        lost: list[str] = []
        found = decode_request(body, at, lost)
        report.read(len(found))
        _tell_lost(lost, at, report)
        yield from found


def _tell_lost(lost: list[str], at: str, report: ImportReport) -> None:
    for why in lost:
        report.read()
        report.skip(LOST, f"{at}: {why}")


def decode_request(body: bytes, at: str, lost: list[str]) -> list[OtelSpan | LogRecord]:
    """A request of traces, or else of logs: on the wire both begin alike. `lost` takes spans that cannot be read."""
    try:
        return [*decode_traces(body, at)]
    except Unreadable as first:
        logs: list[LogRecord] = []
        with suppress(Unreadable):
            logs = decode_logs(body, at)
        if logs:
            return [*logs]
        spans = decode_traces(body, at, lost)
        if not spans:  # nothing of it can be read: it is none
            lost.clear()
            raise first from None
        return [*spans]


def _read_json(path: Path, report: ImportReport) -> Iterator[OtelSpan | LogRecord]:
    for at, text in _values(path):
        lost: list[str] = []
        try:
            found = list(spans_of(decode_json(text), at, lost))
            if lost and not found:
                raise Unreadable(lost[0])
        except Unreadable as error:
            report.read()
            report.skip("an entry that is no span and no request", f"{at}: {error}")
            continue
        if not found:
            report.read()
            report.skip("an entry without any span", at)
        report.read(len(found))
        _tell_lost(lost, at, report)
        yield from found


def _values(path: Path) -> Iterator[tuple[str, bytes]]:
    """The JSON values of a file, each with its place: a line each, or over several lines of which the first begins at
    the margin and the others do not, but for the last."""
    with _opened(path) as file:
        first, size = 0, 0
        waiting: list[bytes] = []
        for number, line in enumerate(file, start=1):
            stripped = line.strip()
            begins = line[:1] in (b"{", b"[")
            if waiting and (begins or not stripped):
                yield f"{path.name}:{first}", b"".join(waiting)
                waiting, size = [], 0
            if not waiting:
                if not stripped or stripped == b",":
                    continue
                if not begins or _is_whole(stripped):
                    yield f"{path.name}:{number}", stripped
                    continue
                first = number
            waiting.append(line)
            size += len(line)
            if size > _MOST_VALUE_BYTES:
                raise CorruptError(f"{path} holds a JSON value of more than {_MOST_VALUE_BYTES:,} bytes.")
            if line[:1] in (b"}", b"]"):
                yield f"{path.name}:{first}", b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield f"{path.name}:{first}", b"".join(waiting)


def _is_whole(line: bytes) -> bool:
    """Whether a line looks like a value by itself."""
    return (line[:1] == b"{" and line[-1:] == b"}") or (line[:1] == b"[" and line[-1:] == b"]")
