"""Native JSON Lines: one record a line, tagged by `kind`. The form in which traces are exchanged.

A trace is a header line (`"kind":"trace"`), its records in any order, and an end line with the
costs, the metrics and how many records of each kind there are. Traces may follow each other in
one file. No end line: the trace is unfinished. Reading is one pass, one trace in memory at a time.

Invariant: what is written is read back equal, whatever order the records came in (events are
given back in `seq` order).
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from baton.errors import CorruptError, FormatError
from baton.trace.formats.collection import no_collection
from baton.trace.formats.jsonl_write import (
    MAX_LINE_BYTES,
    drop_last_line,
)
from baton.trace.formats.sharing import share_strings
from baton.trace.numbers import decode_hook
from baton.trace.records import Call, Credit, Edge, Event, Payload, Reward
from baton.trace.trace import FORMAT_VERSION, End, Header, Record, Trace

Line = Header | Record | End
Block = tuple[Sequence[int], list[Line]]  # line numbers, and what those lines say

_BLOCK_BYTES = 1 << 20
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line, dec_hook=decode_hook)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_jsonl(path: str | os.PathLike[str], *, tolerate_torn_tail: bool = False) -> Iterator[Trace]:
    """The traces of a file, one after the other.

    A last line that was cut off (its writer was killed) is an error unless `tolerate_torn_tail`,
    which drops that line alone and gives the trace it belonged to as unfinished.
    """
    try:
        with Path(path).open("rb") as file:
            traces = _traces(_blocks(file, str(path), tolerate_torn_tail), str(path))
            while True:
                with no_collection():
                    trace = next(traces, None)
                if trace is None:
                    return
                yield trace
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None


def _traces(blocks: Iterable[Block], path: str) -> Iterator[Trace]:
    parts: _Parts | None = None
    pool: dict[Any, Any] = {}
    for numbers, records in blocks:
        share_strings(records, pool)
        for number, record in zip(numbers, records, strict=True):
            if type(record) is Header:
                if parts is not None:
                    yield parts.trace(None)
                _check_version(record.version, path, number)
                parts = _Parts(record)
                pool.clear()
            elif parts is None:
                raise FormatError(_misplaced(record, path, number))
            elif type(record) is End:
                parts.check_counts(record, path, number)
                yield parts.trace(record)
                parts = None
            else:
                parts.lists[type(record)].append(record)
    if parts is not None:
        yield parts.trace(None)


class _Parts:
    """A trace while it is read."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lists: dict[type, list[Any]] = {
            kind: [] for kind in (Event, Edge, Call, Payload, Reward, Credit)
        }

    def trace(self, end: End | None) -> Trace:
        events: list[Event] = self.lists[Event]
        events.sort(key=attrgetter("seq"))
        payloads: dict[str, Payload] = {}
        for payload in self.lists[Payload]:
            known = payloads.get(payload.ref)
            if known is None or known.data is None:  # one that is there wins over one withheld
                payloads[payload.ref] = payload
        return Trace(
            header=self.header,
            events=tuple(events),
            edges=tuple(self.lists[Edge]),
            calls=tuple(self.lists[Call]),
            payloads=payloads,
            rewards=tuple(self.lists[Reward]),
            credits=tuple(self.lists[Credit]),
            costs=end.costs if end else {},
            metrics=end.metrics if end else {},
            finished=end is not None,
        )

    def check_counts(self, end: End, path: str, number: int) -> None:
        if not end.counts:
            return
        for kind, records in self.lists.items():
            tag = str(kind.__struct_config__.tag)  # type: ignore[attr-defined]  # every one is a Struct
            if (said := end.counts.get(tag, 0)) != len(records):
                raise CorruptError(
                    f"{path}: line {number:,} says trace {self.header.trace_id} has {said:,} records of kind "
                    f"{tag!r}; the file holds {len(records):,}. Lines were lost or added after it was "
                    f'written; if that was you, remove "counts" from that line.'
                )


def _blocks(file: BinaryIO, path: str, tolerate_torn_tail: bool) -> Iterator[Block]:
    number = 1
    rest = b""
    if (start := file.read(len(codecs.BOM_UTF8))) != codecs.BOM_UTF8:  # what some editors put there
        rest = start
    while block := file.read(_BLOCK_BYTES):
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest += block
            if len(rest) > MAX_LINE_BYTES:
                raise FormatError(_too_long(path, number))
            continue
        whole = rest + block[:cut]
        yield _decode_lines(whole, path, number)
        number += whole.count(b"\n")
        rest = block[cut:]
    if rest.strip():
        try:
            yield (number,), [_DECODER.decode(rest)]
        except _UNREADABLE as error:
            if not _is_cut_off(rest):
                raise FormatError(_malformed(rest, path, number, error)) from None
            if not tolerate_torn_tail:
                raise FormatError(
                    f"{path}: line {number:,} is cut off; what wrote it was stopped. "
                    f"The lines before it are whole. {drop_last_line(path)}"
                ) from None


def _decode_lines(lines: bytes, path: str, first: int) -> Block:
    """`lines` ends with a newline."""
    try:
        records = _DECODER.decode_lines(lines)
        if len(records) == lines.count(b"\n"):
            return range(first, first + len(records)), records
    except _UNREADABLE:
        pass
    # Something is off, if only an empty line: go one by one to say where.
    numbers, records = [], []
    for number, line in enumerate(lines.split(b"\n"), first):
        if len(line) > MAX_LINE_BYTES:
            raise FormatError(_too_long(path, number))
        if line.strip():
            try:
                records.append(_DECODER.decode(line))
            except _UNREADABLE as error:
                raise FormatError(_malformed(line, path, number, error)) from None
            numbers.append(number)
    return numbers, records


class _Kind(msgspec.Struct):
    kind: str | None = None
    version: int | None = None


def _check_version(version: int, path: str, number: int) -> None:
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{path}: line {number:,} is of format version {version}; "
            f"this Baton reads up to {FORMAT_VERSION}. Type: pip install --upgrade baton-rl"
        )
    if version < 1:
        raise FormatError(
            f"{path}: line {number:,} has format version {version}; expected 1 to {FORMAT_VERSION}."
        )


def _malformed(line: bytes, path: str, number: int, error: Exception) -> str:
    try:
        peek = msgspec.json.decode(line, type=_Kind)
        if peek.kind == "trace" and peek.version is not None:
            _check_version(peek.version, path, number)
    except _UNREADABLE:
        pass
    said = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
    return f"{path}: line {number:,} is not a record of a trace: {said}."


def _misplaced(record: Line, path: str, number: int) -> str:
    tag = record.__struct_config__.tag
    return (
        f"{path}: line {number:,} is of kind {tag!r} but belongs to no trace. Expected a header "
        f'before it: {{"kind":"trace","version":{FORMAT_VERSION},"trace_id":"…","task_id":"…"}}'
    )


def _too_long(path: str, number: int) -> str:
    return f"{path}: line {number:,} is longer than {MAX_LINE_BYTES:,} bytes; is this a JSON Lines file?"


def _is_cut_off(line: bytes) -> bool:
    """Whether a last line without a newline is the beginning of a record, as opposed to something else."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        msgspec.json.decode(line)
    except _UNREADABLE as error:
        return not isinstance(error, RecursionError)
    return False
