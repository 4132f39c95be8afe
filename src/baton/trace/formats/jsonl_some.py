"""Some traces of a JSON Lines file, without decoding the others: what is not asked for is only looked through for the
lines at which traces begin.

Invariant: what is given is what reading the whole file gives. A file in which not all of the traces are found this way
(a header whose keys are spelled in codes, a damaged line) is read whole, and says what is wrong as it always does.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from baton.errors import BatonError, FormatError
from baton.trace.formats.jsonl import MAX_LINE_BYTES, read_bytes, read_jsonl
from baton.trace.trace import Trace

_NAME = b'"trace_id"'  # inside of a string the second mark would have a \ before it


class _Beginning(msgspec.Struct):
    kind: str = ""
    trace_id: str = ""


_DECODER = msgspec.json.Decoder(_Beginning)


def read_some(path: Path, wanted: Collection[str]) -> Iterator[Trace]:
    """The traces of these names, in the order of the file."""
    found: set[str] = set()
    try:
        for lines in _parts(path, wanted):
            for trace in read_bytes(lines, tolerate_torn_tail=True):
                if trace.trace_id in wanted:
                    yield trace
                    found.add(trace.trace_id)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    except BatonError:
        pass
    if left := set(wanted) - found:
        whole = read_jsonl(path, tolerate_torn_tail=True)
        yield from (trace for trace in whole if trace.trace_id in left)


def _parts(path: Path, wanted: Collection[str]) -> Iterator[bytes]:
    """The lines of each trace that is wanted; and of any that follow it whose beginning cannot be told."""
    name: str | None = None
    lines: list[bytes] = []
    first = True
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise FormatError(f"{path} has a line that is too long.")
            if first:
                line, first = line.removeprefix(codecs.BOM_UTF8), False
            begins = _beginning(line) if _NAME in line else None
            if begins is not None:
                if name is not None:
                    yield b"".join(lines)
                name, lines = (begins if begins in wanted else None), []
            if name is not None:
                lines.append(line)
    if name is not None:
        yield b"".join(lines)


def _beginning(line: bytes) -> str | None:
    """The name of the trace that begins with this line; None: none does."""
    try:
        found = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found.trace_id if found.kind == "trace" else None
