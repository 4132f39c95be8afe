"""Native JSON Lines: read once, in blocks, with every record's line number.

While all is well a block is decoded by one call. A block that does not decode is taken line by
line, and a line that does not decode is looked at field by field.
"""

from __future__ import annotations

import codecs
import json
from array import array
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from msgspec import MsgspecError
from msgspec.json import Decoder
from numpy.typing import NDArray

from baton.errors import FormatError, nearest
from baton.installed import upgrade_hint
from baton.trace.formats.jsonl import after_record, after_record_said
from baton.trace.records import Call, Charge, Credit, Edge, Event, Payload, Reward, decode_hook
from baton.trace.trace import FORMAT_VERSION, End, Header
from baton.trace.validation.parts import KINDS, Parts
from baton.trace.validation.problem import Found, clip, shown
from baton.trace.validation.ranges import in_range
from baton.trace.validation.shape import report_fields

_BLOCK_BYTES = 2**20
_UNREADABLE = (MsgspecError, UnicodeDecodeError, RecursionError)
_BY_NAME: dict[str, Any] = {"trace": Header, "end": End, **{name: kind for kind, name in KINDS.items()}}
_Line = Header | Event | Edge | Call | Payload | Reward | Credit | Charge | End
_decoder = Decoder(_Line, dec_hook=decode_hook)
# Most records are events and edges; their ranges are checked as they are decoded.
_Event, _Edge = in_range(Event), in_range(Edge)
_strict_decoder = Decoder(
    Header | _Event | _Edge | Call | Payload | Reward | Credit | Charge | End, dec_hook=decode_hook
)
_STRICT: dict[type, Any] = {Event: _Event, Edge: _Edge}
_TAGS = {_STRICT.get(kind, kind): number for number, kind in enumerate((Header, End, *KINDS))}
_BOUNDS = {_TAGS[Header], _TAGS[End]}
_NAMES = {**KINDS, **{_STRICT[kind]: KINDS[kind] for kind in _STRICT}}


class Stream(Protocol):
    """Where bytes come from."""

    def read(self, num_bytes: int, /) -> bytes: ...


Close = Callable[[Parts, bool], None]
"""Told of each trace: its records, and whether they are all that it has."""


def read_native(
    stream: Stream, found: Found, close: Close, progress: Callable[[int], None], max_line_bytes: int
) -> None:
    """Hand each trace in the stream to `close`. Raises `FormatError` where the rest cannot be read."""
    gathering = _Gathering(found, close)
    try:
        for block in _blocks(stream, max_line_bytes, gathering):
            gathering.take_block(block)
            progress(len(block))
    except FormatError:
        gathering.close_trace(whole=False)
        raise
    gathering.close_trace(whole=True)


def _blocks(stream: Stream, max_line_bytes: int, gathering: _Gathering) -> Iterator[bytes]:
    """The stream in pieces that end at a line's end (the last one may not)."""
    held: list[bytes] = []
    num_held = 0
    first = stream.read(len(codecs.BOM_UTF8))
    if first != codecs.BOM_UTF8:
        held, num_held = [first], len(first)
    while piece := stream.read(min(_BLOCK_BYTES, max_line_bytes)):
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield b"".join([*held, piece[:cut]])
            held, num_held, piece = [], 0, piece[cut:]
        held.append(piece)
        num_held += len(piece)
        if num_held > max_line_bytes:
            raise FormatError(
                f"line {gathering.line + 1} is longer than {max_line_bytes / 2**20:g} MiB; "
                "expected one record on each line."
            )
    if num_held:
        yield b"".join(held)


class _Gathering:
    """The records of the trace that is being read, and the number of the last line."""

    def __init__(self, found: Found, close: Close) -> None:
        self.line = 0
        self._found = found
        self._close = close
        self._trace_ids: set[str] = set()
        self._begin(None)

    def _begin(self, header: Header | None) -> None:
        self._parts = Parts(self._found)
        self._parts.header = header
        self._parts.header_line = self.line
        self._lines = {name: array("q") for name in KINDS.values()}
        self._parts.lines = dict(self._lines)
        self._records: dict[str, list[Any]] = {name: [] for name in KINDS.values()}
        for name, records in self._records.items():
            setattr(self._parts, f"{name}s", records)
        self._parts.in_range = {KINDS[kind] for kind in _STRICT}
        self._open = header is not None
        self._headless = False
        self._late = False
        self._found.trace_id = header.trace_id if header else None

    def take_block(self, block: bytes) -> None:
        try:
            records = _strict_decoder.decode_lines(block)
        except _UNREADABLE:
            records = None
        if records is None or not _one_per_line(block, len(records)):
            self._take_lines(block.replace(b"\r\n", b"\n"))
            return
        tags = bytes(map(_TAGS.__getitem__, map(type, records)))
        sums = map(crc32, block.split(b"\n"))
        if self._open and self._parts.end is None and not _BOUNDS & set(tags):
            self._take_many(records, np.frombuffer(tags, dtype=np.uint8))
            self._parts.crc += sum(sums)
            return
        for record, crc in zip(records, sums, strict=False):  # after the last newline there is an empty line
            self.line += 1
            self._take(record, crc)

    def _take_many(self, records: list[Any], tags: NDArray[np.uint8]) -> None:
        """Records that all belong to the open trace."""
        for kind, name in KINDS.items():
            mask = tags == _TAGS[_STRICT.get(kind, kind)]
            if mask.any():
                self._records[name].extend(compress(records, mask.tobytes()))
                lines = np.flatnonzero(mask) + (self.line + 1)
                self._lines[name].frombytes(lines.astype(np.int64).tobytes())
        self.line += len(records)
        if "structure" in self._found.levels:
            self._parts.fill_columns()

    def _take_lines(self, block: bytes) -> None:
        *lines, rest = block.split(b"\n")
        for line in lines:
            self.line += 1
            self._take_line(line, may_be_cut=False)
        if rest:
            self.line += 1
            self._take_line(rest, may_be_cut=rest.lstrip().startswith(b"{"))

    def _take_line(self, line: bytes, *, may_be_cut: bool) -> None:
        if not line.strip():
            return
        try:
            self._take(_decoder.decode(line), crc32(line))
            self._parts.in_range.clear()
        except _UNREADABLE as error:
            given = self._loosely(line, error, cut=may_be_cut)
            if given is not None:
                self._take_broken(given, error)

    def _take(self, record: Any, crc: int) -> None:
        kind = type(record)
        if kind is Header:
            self._take_header(record)
            self._parts.crc = crc
            return
        if not self._may_stand_here(kind):
            return
        if kind is End:
            self._parts.end, self._parts.end_line = record, self.line
            return
        name = _NAMES[kind]
        self._records[name].append(record)
        self._lines[name].append(self.line)
        self._parts.crc += crc

    def _take_header(self, header: Header) -> None:
        if header.version > FORMAT_VERSION:
            raise FormatError(
                f"line {self.line} says format version {header.version}; "
                f"this Baton reads up to {FORMAT_VERSION}. Type: {upgrade_hint()}"
            )
        self.close_trace(whole=True)
        self._begin(header)
        if header.trace_id in self._trace_ids:
            code, expected = "structure/duplicate-trace", "an id of its own"
            self._report(code, "trace", "trace_id", header.trace_id, expected)
        self._trace_ids.add(header.trace_id)

    def _may_stand_here(self, kind: type) -> bool:
        """Whether a trace is open. What stands outside every trace is reported once, at its first record."""
        name = kind.__name__.lower()
        if self._parts.end is not None:
            if not self._late:
                was, expected = f"a record of kind {name!r}", "nothing, or the header of the next trace"
                self._report("structure/after-end", name, None, was, expected)
            self._late = True
            return False
        if not self._open and not self._headless:
            self._headless = True
            was, expected = f"a record of kind {name!r}", "first a record of kind 'trace'"
            self._report("shape/no-header", name, None, was, expected)
        return True

    def _take_broken(self, given: dict[str, Any], error: Exception) -> None:
        name = given.get("kind")
        kind = _BY_NAME.get(name) if isinstance(name, str) else None
        if kind is None:
            self._parts.lost = True
            was = "no kind" if "kind" not in given else shown(name)
            expected = f"a kind of record. {nearest(clip(str(name)), _BY_NAME)}"
            self._report("shape/unknown-kind", "record", "kind", was, expected)
            return
        id_ = given.get("id") if isinstance(given.get("id"), str) else None
        if kind is Header:
            self._take_broken_header(given)
        elif not self._may_stand_here(kind):
            return
        elif kind is End:
            self._parts.end, self._parts.end_line = End(), self.line
        else:
            self._parts.num_broken[str(name)] = self._parts.num_broken.get(str(name), 0) + 1
            if id_ is not None:
                self._parts.broken.add(id_)
        report_fields(
            self._found,
            kind,
            given,
            record=f"{name} {id_}" if id_ else str(name),
            event_id=id_ if kind is Event else None,
            position=self.line,
            error=str(error),
        )

    def _take_broken_header(self, given: dict[str, Any]) -> None:
        """It still begins a trace; and one of a newer version may well hold what we do not know."""
        version, trace_id = given.get("version"), given.get("trace_id")
        if type(version) is not int or version < 1:
            version = FORMAT_VERSION
        if not trace_id or not isinstance(trace_id, str):
            trace_id = f"at line {self.line}"
        self._take_header(Header(version=version, trace_id=trace_id, task_id="?"))

    def _loosely(self, line: bytes, error: Exception, *, cut: bool) -> dict[str, Any] | None:
        """The line as plain JSON, NaN and all; None once reported as no JSON object."""
        if cut and (more := after_record(line)) is not None:
            raise FormatError(after_record_said(self.line, more))
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as wrong:
            if cut and wrong.reason == "unexpected end of data":
                raise FormatError(self._cut_off()) from None
            raise FormatError(
                f"line {self.line} is not UTF-8: byte 0x{line[wrong.start]:02x} at column {wrong.start + 1}. "
                "Type: iconv -f LATIN1 -t UTF-8 OLD > NEW   (if it is Latin-1)"
            ) from None
        try:
            given = json.loads(text)
        except RecursionError:
            raise FormatError(f"line {self.line} is nested too deeply to be a record.") from None
        except ValueError as wrong:
            if cut:
                raise FormatError(self._cut_off()) from None
            self._parts.lost = True
            was = str(wrong)
            if isinstance(wrong, json.JSONDecodeError):
                was = f"{wrong.msg} at column {wrong.colno}"
            self._report("shape/not-json", "record", None, was, "one JSON object on the line")
            return None
        if not isinstance(given, dict):
            self._parts.lost = True
            self._report("shape/not-an-object", "record", None, shown(given), "a JSON object")
            return None
        if isinstance(error, RecursionError):
            raise FormatError(f"line {self.line} is nested too deeply to be a record.")
        return given

    def _cut_off(self) -> str:
        return f"it is cut off in the middle of a record, at line {self.line}; the lines before it are whole."

    def _report(self, code: str, record: str, field: str | None, was: str, expected: str) -> None:
        self._found.add(code, record, was, expected, position=self.line, field=field)

    def close_trace(self, *, whole: bool) -> None:
        if self._open or self._headless:
            self._close(self._parts, whole)


def _one_per_line(block: bytes, num_records: int) -> bool:
    """Whether every line's end stands between the `}` and the `{` of two records."""
    if b"\r" in block:
        return False
    chars = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(chars == ord("\n"))
    between = ends[:-1] if block.endswith(b"\n") else ends
    return (
        len(between) == num_records - 1
        and bool((chars[between - 1] == ord("}")).all())
        and bool((chars[between + 1] == ord("{")).all())
    )
