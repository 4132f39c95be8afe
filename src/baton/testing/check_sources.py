"""Check a reader of another system's files: whatever happens to a file, the same trace or one clear line each.

The files given are read as they are, and again shuffled, doubled, cut off at every line and in the middle of lines,
with lines of another version, another program and no program at all among them, and interleaved with each other. A
reader never raises for what stands in a file, drops nothing in silence, and what it sees makes a sound trace.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, get_args

from baton.connect.assemble import Assembler
from baton.connect.import_report import ImportReport
from baton.connect.seen import Seen
from baton.connect.source import Source
from baton.errors import BatonError
from baton.testing.check_tools import CheckFailed, require
from baton.trace.canonical import canonical_hash
from baton.trace.trace import Trace
from baton.trace.validation.checks import validate

HARMS: Final = ("shuffled", "doubled", "strange lines", "cut")
"""What is done to files of lines; a reader that cannot bear one says so (`bears`)."""
STRANGE: Final = (
    b"not json at all {",
    b"\xff\xfe\x00 bytes",
    b"[]",
    b"{}",
    b"null",
    b"17",
    b'"text"',
    b'{"type": "from-the-future", "payload": {"x": [1, 2, {"y": null}]}}',
    b'{"type": 5, "timestamp": "yesterday", "uuid": {}, "message": 3}',
    b'{"type": "user", "message": null}',
    b'{"huge": 1' + b"0" * 400 + b"}",
    b'{"lone": "\\ud800", "type": "x"}',
    b"[" * 3000 + b"]" * 3000,
)
_CUTS = 48
_LINES = (".jsonl", ".ndjson")

Sources = dict[Path, list[bytes]]
"""Files of lines, with their lines."""


def check_source(
    source: Source,
    *places: Path,
    bears: Collection[str] = HARMS,
    expected: Callable[[list[Trace]], None] | None = None,
    seed: int = 0,
) -> None:
    """`places` are files or folders of this kind, each of other sessions. `expected` looks at what the first one gives.

    `bears`: of `HARMS`, those that the format has enough in it to bear; what is left out must be lost for a reason.
    """
    who = f"source {source.kind!r}"
    require(places, f"{who}: give at least one file or folder to read.")
    require(source.kind == source.kind.lower().strip(), f"{who}: a kind is written small.")
    require(source.about.strip(), f"{who}: it does not say in `about` which files it reads.")
    _check_recognition(source, places, who)
    for place in places:
        traces, report = imported(source, place)
        _check_sound(traces, report, f"{who}, {place.name}")
        again, _ = imported(source, place)
        require(_same(traces, again), f"{who}, {place.name}: read twice, it gives two different traces.")
    if expected is not None:
        expected(imported(source, places[0])[0])
    for place in places:
        for harm in HARMS:
            if harm in bears:
                _HARMED[harm](source, place, f"{who}, {place.name}, {harm}", Random(seed))
    if len(places) > 1:
        _check_together(source, places, who)


def imported(source: Source, place: Path) -> tuple[list[Trace], ImportReport]:
    """What a reader and the assembler make of one place. Anything but a `BatonError` is the reader's fault."""
    report = ImportReport()
    assembler = Assembler(source.kind, report)
    try:
        assembler.see(_checked(source, place, report))
        return list(assembler.traces()), report
    except BatonError:
        raise
    except Exception as error:
        raise CheckFailed(
            f"source {source.kind!r} raised {type(error).__name__}: {error} on {place}. What stands in a file is told "
            "to the report, never raised."
        ) from error


def _checked(source: Source, place: Path, report: ImportReport) -> Iterator[Seen]:
    kinds = get_args(Seen)
    for seen in source.read(place, report):
        if not isinstance(seen, kinds):
            raise CheckFailed(f"source {source.kind!r} gave {type(seen).__name__}; expected a sighting.")
        yield seen


def _check_recognition(source: Source, places: tuple[Path, ...], who: str) -> None:
    for place in places:
        require(source.recognises(place), f"{who}: recognises() says no to {place}.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        others = [folder, folder / "not-there.jsonl"]
        for name, content in (
            ("empty.jsonl", b""),
            ("words.jsonl", b"Dear reader,\nthis is a letter.\n"),
            ("bytes.json", bytes(range(256)) * 8),
            ("numbers.json", b"[1, 2, 3]"),
            ("deep.json", b"[" * 100_000),
        ):
            (folder / name).write_bytes(content)
            others.append(folder / name)
        for other in others:
            require(
                not source.recognises(other), f"{who}: recognises() says yes to {other.name}, which is none."
            )


def _check_sound(traces: list[Trace], report: ImportReport, who: str) -> None:
    require(traces, f"{who}: no trace came of it.")
    require(report.entries > 0, f"{who}: the report counts no entries: call report.read() for each.")
    for trace in traces:
        problems = [problem for problem in validate(trace) if problem.code != "structure/unfinished"]
        require(not problems, f"{who}: its trace is not sound: {problems[:3]}")
        marked = [(record.inferred, record.why) for record in trace.events]
        marked += [(record.inferred, record.why) for record in trace.edges]
        odd = [each for each in marked if each[0] != (each[1] is not None)]
        require(not odd, f"{who}: inferred without a reason, or a reason for what was recorded: {odd[:3]}")


def _check_shuffled(source: Source, place: Path, who: str, draw: Random) -> None:
    wanted = _traces(source, place)
    with _copy(place) as (copy, files):
        for path, lines in files.items():
            for _ in range(3):
                mixed = list(lines)
                draw.shuffle(mixed)
                _write(path, mixed)
                require(_same(_traces(source, copy), wanted), f"{who}: {path.name} gives another trace.")
            _write(path, lines)


def _check_doubled(source: Source, place: Path, who: str, draw: Random) -> None:
    wanted = _traces(source, place)
    with _copy(place) as (copy, files):
        for path, lines in files.items():
            _write(path, [line for line in lines for _ in range(draw.randint(1, 3))])
            require(_same(_traces(source, copy), wanted), f"{who}: {path.name}, each line up to three times.")
            _write(path, lines + lines)
            require(_same(_traces(source, copy), wanted), f"{who}: {path.name}, written twice in a row.")
            _write(path, lines)


def _check_strange(source: Source, place: Path, who: str, draw: Random) -> None:
    """Lines that say nothing change nothing, and each is told."""
    wanted, before = imported(source, place)
    with _copy(place) as (copy, files):
        for path, lines in files.items():
            mixed = list(lines)
            for line in STRANGE:
                mixed.insert(draw.randint(0, len(mixed)), line)
            _write(path, mixed)
            got, report = imported(source, copy)
            require(_same(got, wanted), f"{who}: {path.name} gives another trace.")
            told = report.skipped.total() - before.skipped.total()
            require(
                told >= len(STRANGE),
                f"{who}: {len(STRANGE)} strange lines in {path.name}, and the report tells of {told}. "
                "Call report.skip(reason, at) for each.",
            )
            _write(path, lines)


def _check_cut(source: Source, place: Path, who: str, draw: Random) -> None:
    """The part that is there gives a sound trace of that part, and a line cut in the middle is told."""
    with _copy(place) as (copy, files):
        for path, lines in files.items():
            cuts = range(len(lines) + 1)
            for cut in cuts if len(cuts) <= _CUTS else sorted(draw.sample(cuts, _CUTS)):
                part = lines[cut][: max(1, len(lines[cut]) // 2)] if cut < len(lines) else b""
                path.write_bytes(b"".join(line + b"\n" for line in lines[:cut]) + part)
                _check_part(source, copy, f"{who}: {path.name} cut after {cut} lines")
            _write(path, lines)
        for path in _documents(copy):
            whole = path.read_bytes()
            for size in sorted({0, 1, len(whole) // 3, len(whole) // 2, max(0, len(whole) - 2)}):
                path.write_bytes(whole[:size])
                _check_part(source, copy, f"{who}: {path.name} cut after {size} bytes")
            path.write_bytes(whole)


def _check_part(source: Source, place: Path, who: str) -> None:
    try:
        traces, report = imported(source, place)
    except BatonError as error:
        told = str(error)
        require("\n" not in told and told.endswith((".", ")", "`")), f"{who}: not one clear line: {told!r}")
        return
    if traces:
        _check_sound(traces, report, who)


def _check_together(source: Source, places: tuple[Path, ...], who: str) -> None:
    """Sightings of several places in turns, as from one file: each session keeps its own trace."""
    wanted = [trace for place in places for trace in _traces(source, place)]
    report = ImportReport()
    assembler = Assembler(source.kind, report)
    streams = [source.read(place, report) for place in places]
    while streams:
        for stream in list(streams):
            seen = next(stream, None)
            if seen is None:
                streams.remove(stream)
            else:
                assembler.see([seen])
    require(_same(list(assembler.traces()), wanted), f"{who}: two places read in turns give other traces.")


_HARMED: Final[dict[str, Callable[[Source, Path, str, Random], None]]] = {
    "shuffled": _check_shuffled,
    "doubled": _check_doubled,
    "strange lines": _check_strange,
    "cut": _check_cut,
}


def _traces(source: Source, place: Path) -> list[Trace]:
    return imported(source, place)[0]


def _same(some: list[Trace], others: list[Trace]) -> bool:
    return _hashes(some) == _hashes(others)


def _hashes(traces: list[Trace]) -> list[str]:
    return sorted(canonical_hash(trace, times=True) for trace in traces)


@contextmanager
def _copy(place: Path) -> Iterator[tuple[Path, Sources]]:
    """The same under the same name, where it may be harmed."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / place.name
        if place.is_dir():
            shutil.copytree(place, copy)
        else:
            shutil.copyfile(place, copy)
        inside = sorted(copy.rglob("*")) if copy.is_dir() else [copy]
        found = [path for path in inside if path.is_file() and path.suffix in _LINES]
        yield copy, {path: path.read_bytes().removesuffix(b"\n").split(b"\n") for path in found}


def _documents(place: Path) -> list[Path]:
    inside = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [path for path in inside if path.is_file() and path.suffix not in _LINES]


def _write(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
