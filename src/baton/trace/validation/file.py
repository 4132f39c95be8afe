"""Validate a file, whatever is in it.

Nothing in a file makes this raise, and nothing in it is read without a bound on its size: a
file that cannot be read gives a report that says why in one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from baton.errors import BatonError, FormatError
from baton.trace.formats import detect, read_all
from baton.trace.formats.decoding import no_collection
from baton.trace.formats.jsonl import MAX_LINE_BYTES
from baton.trace.validation.levels import check
from baton.trace.validation.memory import validate_into
from baton.trace.validation.native import Close, read_native
from baton.trace.validation.parts import Parts
from baton.trace.validation.problem import Found, Level, ValidationReport, level_named
from baton.trace.validation.survey import read_survey

MAX_DOCUMENT_BYTES = 256 * 2**20

Progress = Callable[[int], None]
"""Told how many more bytes were read."""


def validate_file(
    path: str | os.PathLike[str],
    level: Level = "meaning",
    *,
    progress: Progress | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
) -> ValidationReport:
    """Every problem of every trace in a file or store. Never raises for what a file holds."""
    found = Found(level_named(level))
    seen = {"traces": 0, "events": 0}
    kind = ""

    def close(parts: Parts, whole: bool) -> None:
        seen["traces"] += 1
        seen["events"] += len(parts.events) + parts.num_broken.get("event", 0)
        check(parts, found, whole=whole)

    def read() -> None:
        nonlocal kind
        kind = detect(path)
        if kind == "jsonl":
            with Path(path).open("rb") as stream:
                read_native(stream, found, close, progress or (lambda _: None), max_line_bytes)
        elif kind == "survey":
            _read_document(Path(path), found, close, max_document_bytes)
        else:
            for trace in read_all(path):
                seen["traces"] += 1
                seen["events"] += len(trace.events)
                validate_into(found, trace)

    unreadable: str | None = None
    try:
        with no_collection():
            read()
    except OSError as error:
        unreadable = f"{path} cannot be read: {error.strerror or error}."
    except BatonError as error:
        # What stores and formats say names the file already.
        unreadable = str(error) if str(path) in str(error) else f"{path}: {error}"
    except MemoryError:
        unreadable = f"{path} does not fit in this machine's memory."
    return ValidationReport(
        path=str(path),
        level=level,
        positions="line" if kind == "jsonl" else "index",
        num_traces=seen["traces"],
        num_events=seen["events"],
        problems=found.sorted(),
        counts=found.counts,
        unreadable=unreadable,
    )


def _read_document(path: Path, found: Found, close: Close, max_document_bytes: int) -> None:
    if path.stat().st_size > max_document_bytes:
        raise FormatError(
            f"it is one JSON document of more than {max_document_bytes / 2**20:g} MiB, or no trace at all. "
            "Long traces are JSON Lines, with a record of kind 'trace' on the first line."
        )
    read_survey(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), found, close)
