"""The formats that Baton ships, by name. Readers and writers are imported when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from baton.trace.formats.durable import atomic_file
from baton.trace.formats.format import Format
from baton.trace.trace import Trace


def _read_jsonl(path: Path) -> Iterator[Trace]:
    from baton.trace.formats.jsonl import read_jsonl

    return read_jsonl(path)


def _encode_jsonl(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.trace.formats.jsonl import encode_trace

    return chain.from_iterable(map(encode_trace, traces))


def _read_survey(path: Path) -> Iterator[Trace]:
    from baton.trace.formats.survey.survey_read import read_survey

    return iter((read_survey(path),))


def _encode_survey(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.trace.formats.survey.survey_write import encode_survey

    return map(encode_survey, traces)


def _read_stores(path: Path) -> Iterator[Trace]:
    from baton.trace.formats.sqlite.store_folder import read_stores

    return read_stores(path)


def _write_store(traces: Iterable[Trace], path: Path) -> None:
    from baton.trace.formats.sqlite.store import write_store

    write_store(traces, path)


def _read_sealed(path: Path) -> Iterator[Trace]:
    from baton.trace.formats.parquet.shard_read import read_sealed

    return read_sealed(path)


def _seal(traces: Iterable[Trace], path: Path) -> None:
    from baton.trace.formats.parquet.shard_write import seal

    seal(traces, path)


def _encode_chrome(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.trace.formats.chrome import encode_chrome

    return map(encode_chrome, traces)


def _encode_mermaid(traces: Iterable[Trace], *, fenced: bool = False) -> Iterator[bytes]:
    from baton.trace.formats.mermaid import encode_mermaid

    return (encode_mermaid(trace, fenced=fenced) for trace in traces)


def _write_mermaid(traces: Iterable[Trace], path: Path) -> None:
    """In a Markdown file the diagram is a fenced block, which is what shows it as a picture."""
    with atomic_file(path) as file:
        file.writelines(_encode_mermaid(traces, fenced=path.name.endswith(".md")))


FORMATS: Final[dict[str, Format]] = {
    format_.name: format_
    for format_ in (
        Format(
            name="jsonl", about="native JSON Lines, any number of traces", endings=(".jsonl",),
            read_all=_read_jsonl, encode=_encode_jsonl, is_lossless=True,
        ),
        Format(
            name="survey", about="the survey's JSON, one trace", endings=(".survey.json", ".json"),
            read_all=_read_survey, encode=_encode_survey, one_trace=True,
        ),
        Format(
            name="sqlite", about="a live store, any number of traces", endings=(".db", ".sqlite"),
            read_all=_read_stores, write=_write_store, is_lossless=True,
        ),
        Format(
            name="parquet", about="a directory of sealed shards, any number of traces",
            read_all=_read_sealed, write=_seal, is_folder=True, is_lossless=True,
        ),
        Format(
            name="chrome", about="for ui.perfetto.dev and chrome://tracing, one trace; cannot be read back",
            endings=(".chrome.json", ".perfetto.json"), encode=_encode_chrome, one_trace=True,
        ),
        Format(
            name="mermaid", about="a sequence diagram, one trace; cannot be read back", endings=(".mmd", ".md"),
            encode=_encode_mermaid, write=_write_mermaid, one_trace=True,
        ),
    )
}  # fmt: skip
"""Name -> format. What a file of the first four is, `recognition` tells with more care than its first bytes allow."""
