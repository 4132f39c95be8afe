"""The formats that Baton ships, by name. Readers and writers are imported when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

from baton.trace.formats.durable import atomic_file
from baton.trace.formats.format import Format
from baton.trace.trace import Trace


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a format's module, which is imported when it is first called."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(f"baton.trace.formats.{module}"), name)(*args, **options)

    return call


def _each(encode: Callable[[Trace], bytes]) -> Callable[[Iterable[Trace]], Iterator[bytes]]:
    """The bytes of many traces, by what encodes one."""
    return lambda traces: map(encode, traces)


_encode_trace = _late("jsonl", "encode_trace")
_read_survey = _late("survey.survey_read", "read_survey")
_encode_mermaid = _late("mermaid", "encode_mermaid")


def _write_mermaid(traces: Iterable[Trace], path: Path) -> None:
    """In a Markdown file the diagram is a fenced block, which is what shows it as a picture."""
    with atomic_file(path) as file:
        file.writelines(_encode_mermaid(trace, fenced=path.name.endswith(".md")) for trace in traces)


FORMATS: Final[dict[str, Format]] = {
    format_.name: format_
    for format_ in (
        Format(
            name="jsonl", about="native JSON Lines, any number of traces", endings=(".jsonl",),
            read_all=_late("jsonl", "read_lines"), is_lossless=True,
            encode=lambda traces: chain.from_iterable(map(_encode_trace, traces)),
        ),
        Format(
            name="survey", about="the survey's JSON, one trace", endings=(".survey.json", ".json"),
            read_all=lambda path: iter((_read_survey(path),)),
            encode=_each(_late("survey.survey_write", "encode_survey")), one_trace=True,
        ),
        Format(
            name="sqlite", about="a live store, any number of traces", endings=(".db", ".sqlite"),
            read_all=_late("sqlite.store_folder", "read_stores"),
            write=_late("sqlite.store", "write_store"), is_lossless=True,
        ),
        Format(
            name="parquet", about="a directory of sealed shards, any number of traces",
            read_all=_late("parquet.shard_read", "read_sealed"),
            write=_late("parquet.shard_write", "seal"), is_folder=True, is_lossless=True,
        ),
        Format(
            name="chrome", about="for ui.perfetto.dev and chrome://tracing, one trace; cannot be read back",
            endings=(".chrome.json", ".perfetto.json"), encode=_each(_late("chrome", "encode_chrome")),
            one_trace=True,
        ),
        Format(
            name="mermaid", about="a sequence diagram, one trace; cannot be read back", endings=(".mmd", ".md"),
            encode=_each(_encode_mermaid), write=_write_mermaid, one_trace=True,
        ),
    )
}  # fmt: skip
"""Name -> format. What a file of the first four is, `recognition` tells with more care than its first bytes allow."""
