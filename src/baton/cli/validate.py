"""`baton validate`: every problem of every file. Exit 0: none; 1: some; 2: a file cannot be read."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from baton.cli.printing import remark
from baton.trace.formats.recognition import STANDARD_INPUT
from baton.trace.validation import LEVELS, Level, Problem, ValidationReport, validate_file
from baton.view.terminal.fitting import Line
from baton.view.terminal.live import live_line
from baton.view.terminal.screen import emit, take_every_character
from baton.view.text import count, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a trace, or a store of traces; - is standard input"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="meaning",
        help="how far to check; each level includes the ones before it (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    reports: list[ValidationReport] = []
    for path in args.files:
        with _progress(path) as progress:
            report = _report(path, args.level, progress)
        reports.append(report)
        if report.unreadable is not None:
            remark(f"baton validate: {printable(report.unreadable)}")
        if not args.json:
            emit(_lines(report))
    if args.json:
        take_every_character(data=True)
        print(msgspec.json.encode(_document(reports, args.level)).decode())
    elif len(reports) > 1:
        emit([_summary(reports)])
    return (
        2 if any(report.unreadable for report in reports) else int(any(report.counts for report in reports))
    )


def _report(path: str, level: Level, progress: Callable[[int], None]) -> ValidationReport:
    """The problems of a file; - is standard input, and is called so."""
    if path != "-":
        return validate_file(path, level, progress=progress)
    found = validate_file(STANDARD_INPUT, level, progress=progress)
    said = None if found.unreadable is None else found.unreadable.replace(STANDARD_INPUT, "standard input")
    return structs.replace(found, path="standard input", unreadable=said)


def _lines(report: ValidationReport) -> Iterator[Line]:
    path = printable(report.path)
    held = f"{count(report.num_traces, 'trace')}, {count(report.num_events, 'event')}"
    if report.valid:
        yield [(f"{path}: ", ""), ("valid", "green"), (f" ({held})", "dim")]
    elif report.num_problems:
        so_far = "" if report.unreadable is None else " before it became unreadable"
        yield [
            (f"{path}: ", ""),
            (count(report.num_problems, "problem"), "red"),
            (f" ({held}){so_far}", "dim"),
        ]
    kept: Counter[str] = Counter()
    for problem in report.problems:
        kept[problem.code] += 1
        yield _line(problem, report)
    for code, number in report.counts.items():
        if number > kept[code]:
            yield [(f"  and {number - kept[code]:,} more of {code}", "dim")]


def _line(problem: Problem, report: ValidationReport) -> Line:
    several = report.num_traces > 1 and problem.trace_id is not None
    where = [f"trace {problem.trace_id}"] if several else []
    if problem.position is not None:
        where.append(f"{report.positions} {problem.position}")
    where.append(problem.record + (f", {problem.field}" if problem.field else ""))
    return [
        (f"  {problem.code}", "yellow"),
        (f"  {printable(', '.join(where))}: ", ""),
        (f"{problem.message}; found {printable(problem.found)}; expected {printable(problem.expected)}", ""),
    ]


def _summary(reports: list[ValidationReport]) -> Line:
    bad = sum(1 for report in reports if report.unreadable is not None)
    wrong = sum(1 for report in reports if report.unreadable is None and report.counts)
    valid = len(reports) - wrong - bad
    text = f"{count(len(reports), 'file')}: {valid} valid, {wrong} with problems, {bad} unreadable"
    return [(text, "bold")]


def _document(reports: list[ValidationReport], level: str) -> dict[str, Any]:
    files = [
        {
            "path": _unicode(report.path),
            "valid": report.valid,
            "unreadable": None if report.unreadable is None else _unicode(report.unreadable),
            "positions": report.positions,
            "num_traces": report.num_traces,
            "num_events": report.num_events,
            "num_problems": report.num_problems,
            "counts": report.counts,
            "problems": report.problems,
        }
        for report in reports
    ]
    return {"valid": all(report.valid for report in reports), "level": level, "files": files}


def _unicode(text: str) -> str:
    """A file's name may be any bytes; JSON holds characters."""
    return text.encode("utf-8", "backslashreplace").decode()


@contextmanager
def _progress(path: str) -> Iterator[Callable[[int], None]]:
    """How far into a file the reading is, for a person who waits."""
    place = Path(path)
    total = place.stat().st_size if place.is_file() else 0
    num_done = 0

    def advance(num_bytes: int) -> None:
        nonlocal num_done
        num_done += num_bytes

    def tell(seconds: float) -> str:
        so_far = f"{min(1.0, num_done / total):.0%} of it" if total else f"{num_done:,} bytes"
        return f"validating {printable(place.name)}: {so_far}, {seconds:.0f} s"

    with live_line(tell, logged=False):
        yield advance
