"""What is new in a place, as lines for the index: each trace is read once, and again when its file changed.

A store says what it holds without being read, so that its traces are in the table at once; the figures follow. Of a
folder of files each file is read for itself. Lots are small, and nothing is held open between them: others want a turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from msgspec import Struct

from baton.errors import BatonError, FormatError
from baton.trace.formats import read_all
from baton.trace.formats.jsonl import read_jsonl
from baton.trace.formats.jsonl_some import read_some
from baton.trace.formats.parquet.manifest import has_shards
from baton.trace.formats.recognition import IMPORTED, SESSIONS, detect, stores_in
from baton.trace.formats.sqlite.store_read import TraceSummary, is_store, list_traces, read_store
from baton.trace.trace import Trace
from baton.view.index.line import ListedTrace, task_of
from baton.view.index.table import KnownLine
from baton.view.index.words import words_of

SEALED = "sealed"  # the stamp of what does not change any more
_LOT = 50
_LOT_SECONDS = 0.15


class LineLot(Struct, frozen=True, kw_only=True):
    """Some lines, and what is known of those that are still to come."""

    lines: list[KnownLine]
    gone: list[str]
    """Traces that are there no more."""
    left: int
    """How many more are known to be read; there may be others, where a file does not say how many it holds."""
    read: tuple[str, str] | None = None
    """A file of which this is the end, and its stamp. Until then its lines have none, to begin anew if interrupted."""


LineOf = Callable[[Trace], ListedTrace]
Known = dict[str, tuple[str, str]]


def lots(path: Path, known: Known, line_of: LineOf) -> Iterator[LineLot]:
    """What changed in a place since `known` was read: trace -> file and stamp."""
    kind = detect(path)
    if kind == "sqlite":
        yield from _of_stores(path, known, line_of)
    elif kind == "parquet":
        yield from _of_shards(path, set(), known, line_of)
    else:
        yield from _of_files(path, known, line_of)


def traces_in(path: Path, wanted: dict[str, str]) -> Iterator[Trace]:
    """Some traces of a place, file by file; `wanted`: trace -> the file that the index has it in."""
    by_file: dict[str, list[str]] = {}
    for name, file in wanted.items():
        by_file.setdefault(file, []).append(name)
    for file, names in by_file.items():
        place = path / file if path.is_dir() else path
        if file == SEALED:
            from baton.trace.formats.parquet.shard_read import read_sealed

            yield from read_sealed(path, names)
        elif is_store(place):
            for at in range(0, len(names), _LOT):
                yield from read_store(place, names[at : at + _LOT])
        else:
            there = set(names)
            some = read_some(place, there) if detect(place) == "jsonl" else _read_file(place)
            yield from (trace for trace in some if trace.trace_id in there)


def place_stamp(path: Path) -> str:
    """Sizes and times of the files that hold traces."""
    try:
        files = sorted(_files(path)) if path.is_dir() else [path]
        return ";".join(f"{stat.st_size}.{stat.st_mtime_ns}" for stat in map(os.stat, files)) or "empty"
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None


def _files(path: Path) -> Iterator[Path]:
    yield from path.glob("*.db*")
    yield from path.glob("*.sqlite*")
    yield from path.glob("*/manifest.json")
    yield from path.glob("manifest.json")
    if is_folder_of_files(path):
        yield from path.glob("*.jsonl")


def is_folder_of_files(path: Path) -> bool:
    return (path / IMPORTED).is_file() or (path / SESSIONS).is_dir()


def summary_stamp(summary: TraceSummary) -> str:
    return f"{summary.num_records}/{summary.finished}"


def _of_stores(path: Path, known: Known, line_of: LineOf) -> Iterator[LineLot]:
    """First the little that a store knows of all, then what it holds; then what is sealed beside it."""
    live: set[str] = set()
    problems: list[BatonError] = []
    for store in stores_in(path) if path.is_dir() else [path]:
        try:
            yield from _of_store(store, live, known, line_of)
        except BatonError as error:  # another store of the folder may be whole
            problems.append(error)
    if has_shards(path):
        yield from _of_shards(path, live, known, line_of)
    elif not problems:
        yield LineLot(lines=[], gone=[name for name in known if name not in live], left=0)
    if problems:
        raise problems[0]


def _of_store(store: Path, live: set[str], known: Known, line_of: LineOf) -> Iterator[LineLot]:
    summaries = list_traces(store)
    live.update(summary.trace_id for summary in summaries)
    news = [one for one in summaries if known.get(one.trace_id, ("", ""))[1] != summary_stamp(one)]
    changed = store.stat().st_mtime
    unseen = [KnownLine(store.name, "", _unread(one), changed) for one in news if one.trace_id not in known]
    yield LineLot(lines=unseen, gone=[], left=len(news))
    for at in range(0, len(news), _LOT):
        lot = news[at : at + _LOT]
        stamps = {one.trace_id: summary_stamp(one) for one in lot}
        lines = [
            KnownLine(store.name, stamps[trace.trace_id], line_of(trace), changed, words_of(trace))
            for trace in read_store(store, list(stamps))
        ]
        yield LineLot(lines=lines, gone=[], left=len(news) - at - len(lot))


def _of_shards(path: Path, live: set[str], known: Known, line_of: LineOf) -> Iterator[LineLot]:
    """The sealed traces that no store beside them holds any more."""
    from baton.trace.formats.parquet.shard_read import read_sealed, sealed_ids

    sealed = [name for name in sealed_ids(path) if name not in live]
    there = live.union(sealed)
    news = [name for name in sealed if known.get(name, ("", ""))[1] != SEALED]
    yield LineLot(lines=[], gone=[name for name in known if name not in there], left=len(news))
    if news:
        changed = path.stat().st_mtime
        made = (
            KnownLine(SEALED, SEALED, line_of(trace), changed, words_of(trace))
            for trace in read_sealed(path, set(news))
        )
        yield from _in_lots(made, len(news))


def _of_files(path: Path, known: Known, line_of: LineOf) -> Iterator[LineLot]:
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    stamps = {}
    for file in files:
        try:
            stat = file.stat()
        except OSError:  # it went away
            continue
        stamps[file.name] = (f"{stat.st_size}.{stat.st_mtime_ns}", stat.st_mtime)
    read: dict[str, str] = {}
    held: dict[str, set[str]] = {}
    for name, (file_name, stamp) in known.items():
        read[file_name] = stamp
        held.setdefault(file_name, set()).add(name)
    news = [file for file in files if file.name in stamps and read.get(file.name) != stamps[file.name][0]]
    lost = [name for file, names in held.items() if file not in stamps for name in names]
    yield LineLot(lines=[], gone=lost, left=len(news) if path.is_dir() else 0)
    problem: BatonError | None = None
    for at, file in enumerate(news):
        stamp, changed = stamps[file.name]
        found: set[str] = set()
        try:
            for lot in _in_lots(_lines_of(file, changed, line_of, found), 0):
                yield LineLot(lines=lot.lines, gone=[], left=len(news) - at - 1 if path.is_dir() else 0)
            gone = sorted(held.get(file.name, set()) - found)
            yield LineLot(lines=[], gone=gone, left=len(news) - at - 1, read=(file.name, stamp))
        except BatonError as error:
            problem = problem or error
    if problem is not None:
        raise problem


def _lines_of(file: Path, changed: float, line_of: LineOf, found: set[str]) -> Iterator[KnownLine]:
    """The lines of one file. What is said in two traces of one name is in no index: both are read by a search."""
    for trace in _read_file(file):
        words = None if trace.trace_id in found else words_of(trace)
        found.add(trace.trace_id)
        yield KnownLine(file.name, "", line_of(trace), changed, words)


def _in_lots(lines: Iterator[KnownLine], total: int) -> Iterator[LineLot]:
    lot: list[KnownLine] = []
    began, seen = monotonic(), 0
    for line in lines:
        lot.append(line)
        seen += 1
        if len(lot) >= _LOT or monotonic() - began > _LOT_SECONDS:
            yield LineLot(lines=lot, gone=[], left=max(0, total - seen))
            lot, began = [], monotonic()
    if lot:
        yield LineLot(lines=lot, gone=[], left=max(0, total - seen))


def _read_file(path: Path) -> Iterator[Trace]:
    return read_jsonl(path, tolerate_torn_tail=True) if detect(path) == "jsonl" else read_all(path)


def _unread(summary: TraceSummary) -> ListedTrace:
    return ListedTrace(
        id=summary.trace_id,
        task=task_of(summary.task_id),
        instance=summary.task_id,
        finished=summary.finished,
        events=summary.num_events,
        read=False,
        stop=None if summary.finished else "unfinished",
    )
