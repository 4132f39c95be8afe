"""The traces of every place: a line about each, and one whole trace on demand.

Nothing is written. Files may grow while they are looked at: a list is brought up to date by reading what is
new, and a trace carries a stamp that changes with it. A JSON Lines file whose last line is being written is
read up to there.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from baton.errors import BatonError, FormatError, UsageError
from baton.measure.metrics.scale import seconds_of, tokens_of
from baton.trace.formats import read_all
from baton.trace.formats.jsonl import read_lines
from baton.trace.formats.parquet.manifest import has_shards
from baton.trace.formats.recognition import IMPORTED, detect, stores_in
from baton.trace.formats.sqlite.store_read import TraceSummary, list_traces, read_store
from baton.trace.trace import Trace
from baton.view.web.places import Place, find_places

_KEPT_TRACES = 4
_PLACES_SECONDS = 2.0
_SEALED = "sealed"  # the stamp of what does not change any more


class ListedTrace(Struct, frozen=True, kw_only=True):
    """A line about one trace. None: not measured, or not read yet."""

    id: str
    task: str
    finished: bool
    events: int
    agents: int | None = None
    tokens: float | None = None
    seconds: float | None = None
    value: float | None = None
    """What the team's rewards add up to."""
    topology: str | None = None
    step: int | None = None
    """The training step that played it; None outside training."""
    forked_from: str | None = None


class Library:
    """All places, and the traces somebody looked at last."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._lists: dict[str, _List] = {}
        self._kept: OrderedDict[tuple[str, str, str], Trace] = OrderedDict()
        self._forks: dict[tuple[str, str], Trace] = {}
        self._stamps: dict[tuple[str, str], tuple[str, str]] = {}  # with the directory's, when it was taken
        self._places: tuple[float, list[Place]] = (-math.inf, [])
        self._lock = threading.Lock()

    def places(self) -> list[Place]:
        """What is under the paths now, or was a moment ago: every question needs one."""
        then, found = self._places
        if time.monotonic() - then > _PLACES_SECONDS:
            self._places = (time.monotonic(), found := find_places(self._paths))
        return found

    def place(self, key: str) -> Place:
        for place in self.places():
            if place.key == key:
                return place
        raise UsageError(f"there is no place {key!r} here. It may have been moved or deleted.")

    def rows(self, key: str) -> tuple[list[ListedTrace], bool, str | None]:
        """Lines about all traces of a place, forks made here included; whether all have been read; what went wrong."""
        place = self.place(key)
        if place.training and not place.has_traces:  # it has only just begun
            return [], True, None
        with self._lock:
            listed = self._lists.setdefault(key, _List(place.traces))
        rows, complete, problem = listed.rows()
        made = [_row(trace) for (at, _), trace in self._forks.items() if at == key]
        return [*rows, *made], complete, problem

    def rows_stamp(self, key: str) -> str:
        """Changes whenever the lines about a place may have."""
        place = self.place(key)
        if place.training and not place.has_traces:
            return "empty"
        with self._lock:
            listed = self._lists.setdefault(key, _List(place.traces))
        forks = sum(at == key for at, _ in self._forks)
        return f"{forks} {listed.stamp()}"

    def places_with(self, trace_id: str) -> list[str]:
        """Places that hold a trace of this name, as far as they can be read."""
        found = []
        for place in self.places():
            try:
                rows, _, _ = self.rows(place.key)
            except BatonError:
                continue
            if any(row.id == trace_id for row in rows):
                found.append(place.key)
        return found

    def stamp(self, key: str, trace_id: str) -> str:
        """Changes whenever the trace may have changed."""
        if (key, trace_id) in self._forks:
            return "fork"
        path = self.place(key).traces
        now = _directory_stamp(path)
        then, stamp = self._stamps.get((key, trace_id), ("", ""))
        if then != now:
            stamp = _stamp(path, trace_id)
            self._stamps[key, trace_id] = (now, stamp)
        return stamp

    def trace(self, key: str, trace_id: str) -> tuple[Trace, str]:
        """One whole trace and its stamp."""
        stamp = self.stamp(key, trace_id)
        if (made := self._forks.get((key, trace_id))) is not None:
            return made, stamp
        name = (key, trace_id, stamp)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name], stamp
        trace = _read_one(self.place(key).traces, trace_id)
        with self._lock:
            self._kept[name] = trace
            while len(self._kept) > _KEPT_TRACES:
                self._kept.popitem(last=False)
        return trace, stamp

    def fork(self, key: str, trace_id: str) -> Trace:
        """A fork that was made here."""
        if (key, trace_id) not in self._forks:
            raise UsageError(f"no fork {trace_id!r} of {key!r} was made since the viewer began.")
        return self._forks[key, trace_id]

    def add_fork(self, key: str, trace: Trace) -> None:
        """Keep a fork beside the traces of a place, until the viewer ends."""
        self._forks[key, trace.trace_id] = trace


class _List:
    """The lines of one place. The first look starts a thread that reads every trace once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, tuple[str, ListedTrace]] = {}  # with the stamp it was read at
        self._stamp = ""
        self._error: BatonError | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def rows(self) -> tuple[list[ListedTrace], bool, str | None]:
        first = self._stamp == ""
        now = _directory_stamp(self._path)
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if not busy and now != self._stamp:
                self._stamp = now
                self._thread = threading.Thread(target=self._read, daemon=True)
                self._thread.start()
        if self._thread is not None:
            self._thread.join(1.0 if first else 0.2)  # mostly it is read by then
        complete = self._thread is None or not self._thread.is_alive()
        if self._error is not None and not self._rows:
            raise self._error
        problem = None if self._error is None else str(self._error)
        return [row for _, row in list(self._rows.values())], complete, problem

    def stamp(self) -> str:
        """Changes with the files, and while they are read."""
        busy = self._thread is not None and self._thread.is_alive()
        return f"{busy} {len(self._rows)} {_directory_stamp(self._path)}"

    def _read(self) -> None:
        self._error = None
        try:
            if detect(self._path) == "sqlite":
                self._read_stores()
            else:
                for trace in _read_file(self._path):
                    self._rows[trace.trace_id] = ("", _row(trace))
        except BatonError as error:
            self._error = error
        except OSError as error:
            self._error = FormatError(f"{self._path} cannot be read: {error.strerror}.")

    def _read_stores(self) -> None:
        """Only what is new, and first the little that a store knows of all; then what is sealed beside it."""
        live: set[str] = set()
        for store in stores_in(self._path) if self._path.is_dir() else [self._path]:
            news: list[str] = []
            for summary in list_traces(store):
                live.add(summary.trace_id)
                stamp = f"{summary.num_records}/{summary.finished}"
                known = self._rows.get(summary.trace_id)
                if known is None or known[0] != stamp:
                    news.append(summary.trace_id)
                    self._rows[summary.trace_id] = ("", known[1] if known else _unread(summary))
            for trace in read_store(store, news) if news else ():
                stamp = f"{_num_records(trace)}/{trace.finished}"
                self._rows[trace.trace_id] = (stamp, _row(trace))
        if has_shards(self._path):
            self._read_sealed(live)

    def _read_sealed(self, live: set[str]) -> None:
        """The sealed traces that no store beside them holds any more."""
        from baton.trace.formats.parquet.shard_read import read_sealed, sealed_ids

        known = {trace_id for trace_id, (stamp, _) in self._rows.items() if stamp == _SEALED}
        news = set(sealed_ids(self._path)) - live - known
        for trace in read_sealed(self._path, news) if news else ():
            self._rows[trace.trace_id] = (_SEALED, _row(trace))


def _row(trace: Trace) -> ListedTrace:
    meta = trace.header.meta
    train = meta.get("train")
    team = [reward for reward in trace.rewards if reward.unit == "team"]
    shared = [reward for reward in team if reward.channel == "shared"] or team
    forked = meta.get("forked_from")
    return ListedTrace(
        id=trace.trace_id,
        task=trace.header.task_id,
        finished=trace.finished,
        events=len(trace.events),
        agents=1 + sum(e.type == "spawn" and e.status == "ok" for e in trace.events) if trace.events else 0,
        tokens=tokens_of(trace),
        seconds=seconds_of(trace),
        value=shared[0].value if shared else trace.metrics.get("task_success"),
        topology=trace.header.topology,
        step=train.get("step") if isinstance(train, dict) else None,
        forked_from=forked if isinstance(forked, str) else None,
    )


def _unread(summary: TraceSummary) -> ListedTrace:
    return ListedTrace(
        id=summary.trace_id, task=summary.task_id, finished=summary.finished, events=summary.num_events
    )


def _num_records(trace: Trace) -> int:
    kinds = (
        trace.events,
        trace.edges,
        trace.calls,
        trace.payloads,
        trace.rewards,
        trace.credits,
        trace.charges,
    )
    return sum(map(len, kinds))


def _store_of(path: Path, trace_id: str) -> tuple[Path, TraceSummary] | None:
    """The store that holds a trace; None: it may be in a shard beside it."""
    for store in stores_in(path) if path.is_dir() else [path]:
        for summary in list_traces(store):
            if summary.trace_id == trace_id:
                return store, summary
    if has_shards(path):
        return None
    raise UsageError(f"{path} has no trace {trace_id!r} now.")


def _stamp(path: Path, trace_id: str) -> str:
    if detect(path) == "sqlite" and (found := _store_of(path, trace_id)) is not None:
        _, summary = found
        return f"{summary.num_records}/{summary.finished}"
    return _directory_stamp(path)


def _directory_stamp(path: Path) -> str:
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
    if (path / IMPORTED).is_file():
        yield from path.glob("*.jsonl")


def _read_one(path: Path, trace_id: str) -> Trace:
    kind = detect(path)
    traces: Iterator[Trace]
    found = _store_of(path, trace_id) if kind == "sqlite" else None
    if found is not None:
        traces = read_store(found[0], [trace_id])
    elif kind in ("sqlite", "parquet"):
        from baton.trace.formats.parquet.shard_read import read_sealed

        traces = read_sealed(path, [trace_id])
    else:
        own = path / f"{trace_id}.jsonl"  # as an import names it
        traces = _read_file(own if own.is_file() else path)
    for trace in traces:
        if trace.trace_id == trace_id:
            return trace
    raise UsageError(f"{path} has no trace {trace_id!r} now.")


def _read_file(path: Path) -> Iterator[Trace]:
    return read_lines(path, tolerate_torn_tail=True) if detect(path) == "jsonl" else read_all(path)
