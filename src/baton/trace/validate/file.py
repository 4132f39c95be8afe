"""Validate a file, whatever is in it.

Nothing in a file makes this raise, and nothing in it is read without a bound on its size: a
file that cannot be read gives a report that says why in one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from baton.errors import BatonError, FormatError
from baton.trace.formats.collection import no_collection
from baton.trace.formats.jsonl_write import MAX_LINE_BYTES
from baton.trace.validate.levels import check
from baton.trace.validate.memory import validate_into
from baton.trace.validate.native import Close, read_native
from baton.trace.validate.parts import Parts
from baton.trace.validate.problem import Found, Level, Report, level_named
from baton.trace.validate.survey import read_survey

__all__ = ["MAX_DOCUMENT_BYTES", "validate_file"]

MAX_DOCUMENT_BYTES = 256 * 2**20
_HEAD_BYTES = 64 * 1024
_STORES = (b"SQLite format 3\x00", b"PAR1")
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip --keep"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"),
    b"BZh": ("bzip2", "bunzip2 --keep"),
    b"\xfd7zXZ\x00": ("xz", "unxz --keep"),
    b"PK\x03\x04": ("zip", "unzip"),
}
_UTF8_MARK = b"\xef\xbb\xbf"
_NATIVE = re.compile(rb'\s*\{\s*"kind"\s*:')

Progress = Callable[[int], None]
"""Told how many more bytes were read."""


def validate_file(
    path: str | os.PathLike[str],
    level: Level = "meaning",
    *,
    progress: Progress | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
) -> Report:
    """Every problem of every trace in a file or store. Never raises for what a file holds."""
    level = level_named(level)
    found = Found()
    seen = {"traces": 0, "events": 0}

    def close(parts: Parts, whole: bool) -> None:
        seen["traces"] += 1
        seen["events"] += len(parts.events)
        check(parts, found, level if whole else "shape")

    unreadable: str | None = None
    try:
        with no_collection():
            if _is_store(Path(path)):
                _read_store(path, level, found, seen)
            else:
                with Path(path).open("rb") as stream:
                    _read_text(
                        stream, found, close, progress or (lambda _: None), max_line_bytes, max_document_bytes
                    )
    except OSError as error:
        unreadable = f"it cannot be opened: {error.strerror or error}."
    except BatonError as error:
        unreadable = str(error)
    except MemoryError:
        unreadable = "it does not fit in this machine's memory."
    return Report(
        path=str(path),
        level=level,
        num_traces=seen["traces"],
        num_events=seen["events"],
        problems=found.sorted(),
        counts=found.counts,
        unreadable=unreadable,
    )


def _is_store(path: Path) -> bool:
    if path.is_dir():
        return True
    if not path.is_file():  # a pipe's head can be read only once
        return False
    with path.open("rb") as stream:
        return stream.read(16).startswith(_STORES)


def _read_store(path: str | os.PathLike[str], level: Level, found: Found, seen: dict[str, int]) -> None:
    from baton.trace.formats import read_all

    for trace in read_all(path):
        seen["traces"] += 1
        seen["events"] += len(trace.events)
        validate_into(found, trace, level)


def _read_text(
    stream: BinaryIO,
    found: Found,
    close: Close,
    progress: Progress,
    max_line_bytes: int,
    max_document_bytes: int,
) -> None:
    head = stream.read(_HEAD_BYTES)
    _refuse_other_kinds(head)
    head = head.removeprefix(_UTF8_MARK)
    if _is_native(head):
        read_native(_Rejoined(head, stream), found, close, progress, max_line_bytes)
        return
    if os.fstat(stream.fileno()).st_size <= max_document_bytes:
        document = head + stream.read(max_document_bytes - len(head) + 1)
        progress(len(document))
        if len(document) <= max_document_bytes:
            read_survey(document, found, close)
            return
    raise FormatError(
        f"it is one JSON document of more than {max_document_bytes / 2**20:g} MiB, or no trace at all. "
        "Long traces are JSON Lines, with a record of kind 'trace' on the first line."
    )


class _Rejoined:
    """A stream from its beginning, of which the head was read already. A pipe cannot go back."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def read(self, num_bytes: int) -> bytes:
        head, self._head = self._head, b""
        return head + self._stream.read(num_bytes - len(head))


def _refuse_other_kinds(head: bytes) -> None:
    if not head.strip() and len(head) < _HEAD_BYTES:
        raise FormatError("it is empty; expected a trace.")
    for magic, (name, command) in _COMPRESSED.items():
        if head.startswith(magic):
            raise FormatError(f"it is compressed with {name}; expected plain text. Type: {command} FILE")
    if (
        head.startswith((b"\xff\xfe", b"\xfe\xff"))
        or head[1:8:2] == b"\0\0\0\0"
        or head[0:8:2] == b"\0\0\0\0"
    ):
        raise FormatError(
            "it is UTF-16 or UTF-32 text; expected UTF-8. Type: iconv -f UTF-16 -t UTF-8 OLD > NEW"
        )
    if b"\0" in head:
        raise FormatError("it is binary; expected JSON Lines, the survey's JSON, or a store of Baton's.")


def _is_native(head: bytes) -> bool:
    """Whether this is JSON Lines, as opposed to one document."""
    if _NATIVE.match(head):
        return True
    first, _, rest = head.lstrip().partition(b"\n")
    try:
        record = msgspec.json.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if isinstance(record, dict) and "kind" not in record and rest.strip():
        raise FormatError(
            "it holds JSON records that have no kind; expected a first line such as "
            '{"kind":"trace","version":1,"trace_id":"…","task_id":"…"}'
        )
    return isinstance(record, dict) and "kind" in record
