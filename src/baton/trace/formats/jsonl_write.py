"""Writing native JSON Lines: whole files at once, or a trace as it happens.

Invariant: a line that is written can be read back as what it was; anything else is refused here,
not found out later.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from baton.errors import FormatError, TraceError, UsageError
from baton.trace.formats.durable import atomic_file
from baton.trace.numbers import Floats, encode_hook
from baton.trace.trace import End, Header, Record, Trace

MAX_LINE_BYTES = 64 * 2**20
"""No line may be longer: a reader never holds more than this of a file it cannot make sense of."""

_ENCODER = msgspec.json.Encoder(enc_hook=encode_hook)


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


def encode_trace(trace: Trace) -> Iterator[bytes]:
    """A trace's lines, in the order that reads best: calls and payloads before what refers to them.

    Costs and metrics stand on the end line, so an unfinished trace is written without.
    """
    yield encode_record(trace.header)
    counts: dict[str, int] = {}
    for kind, records in _by_kind(trace):
        if records:
            counts[kind] = len(records)
            yield from map(encode_record, records)
    if trace.finished:
        yield encode_record(End(costs=trace.costs, metrics=trace.metrics, counts=counts))


def write_jsonl(traces: Trace | Iterable[Trace], path: str | os.PathLike[str]) -> None:
    """Write one file, whole or not at all."""
    with atomic_file(path) as file:
        for trace in (traces,) if isinstance(traces, Trace) else traces:
            file.writelines(encode_trace(trace))


class JsonlWriter:
    """Writes one trace as it happens; add more by opening the same file again.

    A record is in the operating system's hands when `write` returns (it survives the death of this
    process); `flush(sync=True)` puts it on the disk. `close` without `end` leaves the trace unfinished.
    """

    def __init__(self, path: str | os.PathLike[str], header: Header, *, flush_every: int = 1) -> None:
        """`flush_every`: hand records over in batches of this size."""
        if flush_every < 1:
            raise UsageError(f"flush_every is {flush_every}; expected 1 or more.")
        self._path = Path(path)
        self._file = _open_to_append(self._path)
        self._flush_every = flush_every
        self._waiting: list[bytes] = [encode_record(header)]
        self._counts: Counter[str] = Counter()
        self._ended = False
        self.flush()

    def write(self, *records: Record) -> None:
        if self._ended:
            raise UsageError(f"{self._path}: the trace has ended; nothing can follow.")
        for record in records:
            self._waiting.append(encode_record(record))
            self._counts[_tag(record)] += 1
            if len(self._waiting) >= self._flush_every:
                self.flush()

    def end(self, *, costs: dict[str, float] | None = None, metrics: dict[str, float] | None = None) -> None:
        """The trace is complete. Writes the end line, syncs, closes."""
        if not self._ended:
            end = End(costs=costs or {}, metrics=metrics or {}, counts=dict(self._counts))
            self._waiting.append(encode_record(end))
            self._ended = True
        self.flush(sync=True)
        self.close()

    def flush(self, *, sync: bool = False) -> None:
        if self._waiting:
            # One write call for the batch: another process never sees a line half made by two of them.
            self._file.write(b"".join(self._waiting))
            self._waiting.clear()
        if sync and not self._file.closed:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_to_append(path: Path) -> BinaryIO:
    try:
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.close()
            raise FormatError(
                f"{path}: its last line is cut off, nothing can be added. {drop_last_line(path)}"
            )
    return file


def _by_kind(trace: Trace) -> tuple[tuple[str, Any], ...]:
    return (
        ("payload", tuple(trace.payloads.values())),
        ("call", trace.calls),
        ("event", trace.events),
        ("edge", trace.edges),
        ("reward", trace.rewards),
        ("credit", trace.credits),
    )


def _tag(record: Any) -> str:
    return str(type(record).__struct_config__.tag)


def _name(record: Any) -> str:
    own = getattr(record, "id", None) or getattr(record, "ref", None) or getattr(record, "target", None)
    return f"{_tag(record)} {own!r}" if own else f"this {_tag(record)}"


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
