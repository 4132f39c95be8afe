"""Validate a trace that is in memory, or a file, whatever is in it.

Nothing in a file makes this raise, and nothing in it is read without a bound on its size: a
file that cannot be read gives a report that says why in one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from baton.errors import BatonError, FormatError
from baton.trace.formats import detect, read_all
from baton.trace.formats.decoding import no_collection
from baton.trace.formats.jsonl import MAX_LINE_BYTES
from baton.trace.formats.recognition import kept_in
from baton.trace.trace import End, Header, Trace
from baton.trace.validation.fields import field_faults
from baton.trace.validation.meaning import check_meaning
from baton.trace.validation.native import Close, read_native
from baton.trace.validation.parts import Parts
from baton.trace.validation.problem import Found, Level, Problem, ValidationReport, level_named
from baton.trace.validation.shape import check_ranges, check_types, fields_given
from baton.trace.validation.structure import check_structure
from baton.trace.validation.survey import read_survey

MAX_DOCUMENT_BYTES = 256 * 2**20

Progress = Callable[[int], None]
"""Told how many more bytes were read."""


def validate(trace: Trace, level: Level = "meaning") -> list[Problem]:
    """Every problem of a trace, up to and including a level; at most 1,000 of each code."""
    found = Found(level_named(level))
    _validate_into(found, trace)
    return found.sorted()


def _validate_into(found: Found, trace: Trace) -> None:
    parts = Parts.of_trace(trace, found)
    if _report_mistyped(found, parts.header, "trace"):
        parts.header = None
    if _report_mistyped(found, parts.end, "end"):
        parts.end = End()
    check_types(parts)
    _check(parts)


def _report_mistyped(found: Found, record: Header | End | None, name: str) -> bool:
    if record is None:
        return False
    # Values out of range are left to the next check, which is for all records alike.
    faults = field_faults(type(record), fields_given(record), ranges_of=Struct)
    for field, (code, was, expected) in faults:
        found.add(code, name, was, expected, field=field)
    return bool(faults)


def _check(parts: Parts, *, whole: bool = True) -> None:
    """Check well-typed records. In a trace that is not whole, only one by one."""
    check_ranges(parts)
    if whole and "structure" in parts.found.levels:
        check_structure(parts)
    if whole and "meaning" in parts.found.levels:
        check_meaning(parts)


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
        _check(parts, whole=whole)

    def read() -> None:
        nonlocal kind
        kind = detect(kept_in(path))
        if kind == "jsonl" and not Path(path).is_dir():
            with Path(path).open("rb") as stream:
                read_native(stream, found, close, progress or (lambda _: None), max_line_bytes)
            if not seen["traces"] and not found.counts:
                raise FormatError(f"{path} is empty.")
        elif kind == "survey":
            _read_document(Path(path), found, close, max_document_bytes)
        else:
            for trace in read_all(path):
                seen["traces"] += 1
                seen["events"] += len(trace.events)
                _validate_into(found, trace)

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
        positions="line" if kind == "jsonl" and not Path(path).is_dir() else "index",
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
