"""Native JSON Lines: one record a line, tagged by `kind`. The form in which traces are exchanged.

A trace is a header line (`"kind":"trace"`), its records in any order, and an end line with the
costs, the metrics, how many records of each kind there are, and a checksum of them all. Traces may
follow each other in one file. No end line: the trace is unfinished. Reading is one pass, one trace
in memory at a time; writing is of whole files at once, or of a trace as it happens (`JsonlWriter`).

The checksum is the sum of the CRC-32 of every line, so it does not mind their order; and what a tool
wrote anew with other spaces or line ends is summed again as Baton would have written it.

Invariant: what is written is read back equal, whatever order the records came in (events are
given back in `seq` order); what could not be is refused when it is written.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import msgspec

from baton.errors import CorruptError, FormatError, TraceError
from baton.installed import upgrade_hint
from baton.trace.formats.decoding import no_collection, share_strings
from baton.trace.formats.durable import atomic_file
from baton.trace.records import (
    Call,
    Charge,
    Credit,
    Edge,
    Event,
    Floats,
    Payload,
    Reward,
    decode_hook,
    encode_hook,
)
from baton.trace.trace import FORMAT_VERSION, End, Header, Record, Trace

MAX_LINE_BYTES = 64 * 2**20
"""No line may be longer: a reader never holds more than this of a file it cannot make sense of."""

Line = Header | Record | End
Block = tuple[Sequence[int], list[Line], list[int]]  # line numbers, what those lines say, and their checksums

_BLOCK_BYTES = 1 << 16  # small: what a block takes while it is read stays with the process, and fits a cache
_BATCH = 64  # records written at a time
_LARGE = 1 << 16  # bytes of a payload
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line, dec_hook=decode_hook)
_ENCODER = msgspec.json.Encoder(enc_hook=encode_hook)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_lines(place: Path, *, tolerate_torn_tail: bool = False) -> Iterator[Trace]:
    """The traces of a file; of a folder, those of all its files by name."""
    for path in sorted(place.glob("*.jsonl")) if place.is_dir() else [place]:
        yield from read_jsonl(path, tolerate_torn_tail=tolerate_torn_tail)


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


def read_bytes(content: bytes, *, tolerate_torn_tail: bool = False) -> Iterator[Trace]:
    """The traces of a file's content."""
    return _traces(_blocks(io.BytesIO(content), "content", tolerate_torn_tail), "content")


def _traces(blocks: Iterable[Block], path: str) -> Iterator[Trace]:
    parts: _Parts | None = None
    pool: dict[Any, Any] = {}
    for numbers, records, sums in blocks:
        share_strings(records, pool)
        for number, record, crc in zip(numbers, records, sums, strict=True):
            if type(record) is Header:
                if parts is not None:
                    yield Trace.gathered(parts.header, parts.lists, None)
                _check_version(record.version, path, number)
                parts = _Parts(record, crc)
                pool.clear()
            elif parts is None:
                raise FormatError(_misplaced(record, path, number))
            elif type(record) is End:
                parts.check_counts(record, path, number)
                parts.check_crc(record, path, number)
                yield Trace.gathered(parts.header, parts.lists, record)
                parts = None
            else:
                parts.lists[type(record)].append(record)
                parts.crc += crc
    if parts is not None:
        yield Trace.gathered(parts.header, parts.lists, None)


class _Parts:
    """A trace while it is read."""

    def __init__(self, header: Header, crc: int) -> None:
        self.header = header
        self.crc = crc
        self.lists: dict[type, list[Any]] = {
            kind: [] for kind in (Event, Edge, Call, Payload, Reward, Credit, Charge)
        }

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

    def check_crc(self, end: End, path: str, number: int) -> None:
        if end.crc is None or end.crc == sealed(self.crc, end):
            return
        lines = (self.header, *chain.from_iterable(self.lists.values()))
        if end.crc != sealed(sum(line_crc(encode_record(record)) for record in lines), end):
            raise CorruptError(
                f"{path}: trace {self.header.trace_id} does not match the checksum on line {number:,}. It was "
                f'damaged or changed after it was written; if that was you, remove "crc" from that line.'
            )


def line_crc(line: bytes) -> int:
    """The checksum of one record's line, newline left out."""
    return crc32(line[:-1])


def sealed(crc: int, end: End) -> int:
    """The checksum of a trace's lines with that of its end, which is summed as it is without one."""
    plain = End(costs=_floats(end.costs), metrics=_floats(end.metrics), counts=end.counts)
    return (crc + line_crc(encode_record(plain))) & 0xFFFFFFFF


def _floats(figures: dict[str, float]) -> dict[str, float]:
    """As they are read back: a whole number may have been written without its point."""
    return {name: float(value) for name, value in figures.items()}


def _blocks(file: BinaryIO, path: str, tolerate_torn_tail: bool) -> Iterator[Block]:
    number = 1
    held: list[bytes] = []  # of a line that has not ended
    if (start := file.read(len(codecs.BOM_UTF8))) != codecs.BOM_UTF8:  # what some editors put there
        held = [start]
    while block := file.read(_BLOCK_BYTES):
        cut = block.rfind(b"\n") + 1
        if not cut:
            held.append(block)
            if sum(map(len, held)) > MAX_LINE_BYTES:
                raise FormatError(_too_long(path, number))
            continue
        whole = b"".join((*held, block[:cut]))
        yield _decode_lines(whole, path, number)
        number += whole.count(b"\n")
        held = [block[cut:]]
    rest = b"".join(held)
    if rest.strip():
        try:
            yield (number,), [_DECODER.decode(rest)], [crc32(rest)]
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
            return range(first, first + len(records)), records, list(map(crc32, lines.split(b"\n")[:-1]))
    except _UNREADABLE:
        pass
    # Something is off, if only an empty line: go one by one to say where.
    numbers, records, sums = [], [], []
    for number, line in enumerate(lines.split(b"\n"), first):
        if len(line) > MAX_LINE_BYTES:
            raise FormatError(_too_long(path, number))
        if line.strip():
            try:
                records.append(_DECODER.decode(line))
            except _UNREADABLE as error:
                raise FormatError(_malformed(line, path, number, error)) from None
            numbers.append(number)
            sums.append(crc32(line))
    return numbers, records, sums


class _Kind(msgspec.Struct):
    kind: str | None = None
    version: int | None = None


def _check_version(version: int, path: str, number: int) -> None:
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{path}: line {number:,} is of format version {version}; "
            f"this Baton reads up to {FORMAT_VERSION}. Type: {upgrade_hint()}"
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
    if (more := after_record(line)) is not None:
        return f"{path}: {after_record_said(number, more)}"
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
    if not line.lstrip().startswith(b"{") or after_record(line) is not None:
        return False
    try:
        msgspec.json.decode(line)
    except _UNREADABLE as error:
        return not isinstance(error, RecursionError)
    return False


def after_record(line: bytes) -> bytes | None:
    """What stands on a line behind a whole JSON object; None: nothing, or there is no whole one."""
    text = line.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip())
    try:
        found, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    more = text[end:].strip(" \t\r\n").encode("utf-8", "surrogateescape")
    return more if more and isinstance(found, dict) else None


def after_record_said(number: int, more: bytes) -> str:
    """What to say of a line that goes on behind its record, as one does whose newline was damaged."""
    shown = repr(more[:8]) + ("…" if len(more) > 8 else "")
    return (
        f"line {number:,} has {shown} after its record, where the line should end. It was damaged after it was "
        "written: the record is whole, so put a newline there."
    )


def encode_record(record: Header | Record | End) -> bytes:
    """The record's line, newline included. Refuses what could not be read back as it was."""
    try:
        line = _ENCODER.encode(record)
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"{_name(record)} cannot be written as JSON: {error}.") from None
    # Not-a-number has no JSON; the encoder writes it as null. Absent fields are left out, so null is rare.
    if b"null" in line and not all_finite(msgspec.structs.asdict(record)):
        raise TraceError(
            f"{_name(record)} holds a number that is not finite; leave out what was not measured."
        )
    if len(line) >= MAX_LINE_BYTES:
        raise TraceError(
            f"{_name(record)} takes {len(line):,} bytes; a line holds at most {MAX_LINE_BYTES:,}."
        )
    return line + b"\n"


def encode_records(records: Iterable[Record]) -> Iterator[bytes]:
    """The lines of records of one kind, many at a time: one by one they take three times as long."""
    left = iter(records)
    while batch := list(islice(left, _BATCH)):
        lines = b""
        if type(batch[0]) is not Payload or not any(map(_is_large, batch)):
            with suppress(TypeError, ValueError, RecursionError):
                lines = _ENCODER.encode_lines(batch)
        if lines and b"null" not in lines and len(lines) < MAX_LINE_BYTES:
            yield lines
        else:  # what is large, or may have to be refused, goes by itself
            yield from map(encode_record, batch)


def _is_large(record: Record) -> bool:
    return type(record) is Payload and record.size > _LARGE and len(record.data or b"") > _LARGE


def encode_trace(trace: Trace) -> Iterator[bytes]:
    """A trace's lines, some at a time, in the order that reads best: calls and payloads before what refers to them.

    Costs and metrics stand on the end line, so an unfinished trace is written without.
    """
    yield (line := encode_record(trace.header))
    crc, counts = line_crc(line), {}
    for kind, records in trace.by_kind().items():
        if records:
            counts[kind] = len(records)
            for lines in encode_records(records):
                yield lines
                crc += sum(
                    map(crc32, lines.split(b"\n"))
                )  # behind the last newline is nothing, which sums to 0
    if trace.finished:
        yield encode_end(End(costs=trace.costs, metrics=trace.metrics, counts=counts), crc)


def encode_end(end: End, crc: int) -> bytes:
    """The last line of a trace whose other lines have this checksum."""
    return encode_record(msgspec.structs.replace(end, crc=sealed(crc, end)))


def write_jsonl(traces: Trace | Iterable[Trace], path: str | os.PathLike[str]) -> None:
    """Write one file, whole or not at all."""
    with atomic_file(path) as file:
        for trace in (traces,) if isinstance(traces, Trace) else traces:
            file.writelines(encode_trace(trace))


def tag_of(record: Any) -> str:
    """The kind of a record, as its line says it."""
    return str(type(record).__struct_config__.tag)


def _name(record: Any) -> str:
    own = getattr(record, "id", None) or getattr(record, "ref", None) or getattr(record, "target", None)
    return f"{tag_of(record)} {own!r}" if own else f"this {tag_of(record)}"


def all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(all_finite, value.values()))
    if isinstance(value, list | tuple | Floats):
        return all(map(all_finite, value))
    return not isinstance(value, msgspec.Struct) or all_finite(msgspec.structs.asdict(value))


def drop_last_line(path: str | os.PathLike[str]) -> str:
    """The end of a message about a line that was cut off."""
    return f"Drop it with: sed -i '$ d' {shlex.quote(str(path))}"
