"""Read and write traces in any format. Readers and writers are imported when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from baton.errors import FormatError, UsageError, nearest
from baton.trace.formats.collection import no_collection
from baton.trace.formats.detect import FORMATS, detect, format_of_name
from baton.trace.trace import Trace


def read(path: str | os.PathLike[str]) -> Trace:
    """The one trace of a file. `read_all` reads many."""
    traces = read_all(path)
    first = next(traces, None)
    if first is None:
        raise FormatError(f"{path} holds no trace.")
    more = sum(1 for _ in traces)
    if more:
        raise FormatError(
            f"{path} holds {more + 1:,} traces; read() gives one. Use read_all() for all of them."
        )
    return first


def read_all(path: str | os.PathLike[str]) -> Iterator[Trace]:
    """The traces of a file or directory, whatever its format, one in memory at a time."""
    kind = detect(path)
    if kind == "jsonl":
        from baton.trace.formats.jsonl import read_jsonl

        return read_jsonl(path)
    if kind == "survey":
        from baton.trace.formats.survey import read_survey

        return iter((read_survey(path),))
    if kind == "sqlite":
        from baton.trace.formats.beside import read_stores

        return read_stores(Path(path))
    from baton.trace.formats.parquet_read import read_sealed

    return read_sealed(Path(path))


def write(traces: Trace | Iterable[Trace], path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write traces in the format that `path` names (or `format`).

    Text formats replace the file, whole or not at all; a store or a directory of shards is added to.
    """
    kind = format_of_name(path) if format is None else format
    if kind == "sqlite":
        from baton.trace.formats.sqlite import write_store

        write_store(_many(traces), Path(path))
    elif kind == "parquet":
        from baton.trace.formats.parquet import seal

        seal(_many(traces), Path(path))
    else:
        from baton.trace.formats.durable import atomic_file

        chunks = encode(traces, kind, fenced=os.fspath(path).endswith(".md"))
        with atomic_file(path) as file:
            file.writelines(chunks)


def encode(traces: Trace | Iterable[Trace], format: str, *, fenced: bool = False) -> Iterator[bytes]:
    """A text format's bytes. `fenced`: a Mermaid diagram as a block of Markdown."""
    if format == "jsonl":
        from baton.trace.formats.jsonl_write import encode_trace

        return chain.from_iterable(map(encode_trace, _many(traces)))
    encoder = _encoder(format, fenced)
    trace = _one(traces, format)
    with no_collection():
        return iter((encoder(trace),))


def _encoder(format: str, fenced: bool) -> Callable[[Trace], bytes]:
    if format == "survey":
        from baton.trace.formats.survey_write import encode_survey

        return encode_survey
    if format == "chrome":
        from baton.trace.formats.chrome import encode_chrome

        return encode_chrome
    if format == "mermaid":
        from baton.trace.formats.mermaid import encode_mermaid

        return lambda trace: encode_mermaid(trace, fenced=fenced)
    raise UsageError(f"there is no format {format!r} of text. {nearest(format, FORMATS)}")


def _many(traces: Trace | Iterable[Trace]) -> Iterable[Trace]:
    return (traces,) if isinstance(traces, Trace) else traces


def _one(traces: Trace | Iterable[Trace], format: str) -> Trace:
    found = iter(_many(traces))
    first = next(found, None)
    if first is None:
        raise UsageError(f"there is no trace to write as {format}.")
    if next(found, None) is not None:
        raise UsageError(f"{format} holds one trace and there are more. Write .jsonl, or one file for each.")
    return first
