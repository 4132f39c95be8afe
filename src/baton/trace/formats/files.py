"""Read and write traces in any format: a file's content says what it is, a new file's name says what it becomes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from baton.errors import FormatError, UsageError
from baton.trace.formats.decoding import no_collection
from baton.trace.formats.durable import atomic_file
from baton.trace.formats.format import Format, find_format
from baton.trace.formats.recognition import detect, format_of_name, kept_in
from baton.trace.trace import Trace


def read(path: str | os.PathLike[str], format: str | None = None) -> Trace:
    """The one trace of a file. `read_all` reads many. `format` says what it is, where its content does not."""
    traces = read_all(path, format)
    first = next(traces, None)
    if first is None:
        raise FormatError(f"{path} holds no trace.")
    more = sum(1 for _ in traces)
    if more:
        raise FormatError(
            f"{path} holds {more + 1:,} traces; read() gives one. Use read_all() for all of them."
        )
    return first


def read_all(path: str | os.PathLike[str], format: str | None = None) -> Iterator[Trace]:
    """The traces of a file or directory, whatever its format, one in memory at a time."""
    place = kept_in(path)
    found = find_format(detect(place) if format is None else format)
    if found.read_all is None:
        raise UsageError(f"{found.name} is a format that is written and cannot be read back.")
    return found.read_all(place)


def write(traces: Trace | Iterable[Trace], path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write traces in the format that `path` names (or `format`).

    Text formats replace the file, whole or not at all; a store or a directory of shards is added to.
    """
    found = find_format(format_of_name(path) if format is None else format)
    if found.write is not None:
        found.write(_held(traces, found), Path(path))
        return
    chunks = _encoded(traces, found)
    with atomic_file(path) as file:
        file.writelines(chunks)


def encode(traces: Trace | Iterable[Trace], format: str) -> Iterator[bytes]:
    """The bytes of a text format, in pieces."""
    return iter(_encoded(traces, find_format(format)))


def _encoded(traces: Trace | Iterable[Trace], found: Format) -> Iterable[bytes]:
    if found.encode is None:
        why = "a format that is read and not written" if found.write is None else "no text"
        raise UsageError(f"{found.name} is {why}, so traces cannot be encoded as it.")
    held = _held(traces, found)
    if not found.one_trace:
        return found.encode(held)
    with no_collection():
        return tuple(found.encode(held))  # refused before the file is touched


def _held(traces: Trace | Iterable[Trace], found: Format) -> Iterable[Trace]:
    """What the format is given: exactly one trace where it holds no more."""
    many = (traces,) if isinstance(traces, Trace) else traces
    if not found.one_trace:
        return many
    each = iter(many)
    first = next(each, None)
    if first is None:
        raise UsageError(f"there is no trace to write as {found.name}.")
    if next(each, None) is not None:
        raise UsageError(
            f"{found.name} holds one trace and there are more. Write .jsonl, or one file for each."
        )
    return (first,)
