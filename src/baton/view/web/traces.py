"""The traces of every place: a line about each, and one whole trace on demand.

Nothing is written where traces are. Files may grow while they are looked at: the index of lines is brought up to date
by reading what is new, and a trace carries a stamp that changes with it. A JSON Lines file whose last line is being
written is read up to there.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from baton.errors import BatonError, UsageError
from baton.trace.formats import read_all
from baton.trace.formats.jsonl import read_lines
from baton.trace.formats.parquet.manifest import has_shards
from baton.trace.formats.recognition import detect, stores_in
from baton.trace.formats.sqlite.store_read import TraceSummary, list_traces, read_store
from baton.trace.trace import Trace
from baton.view.index.filling import Filler
from baton.view.index.line import ListedTrace, Measured, line_of
from baton.view.index.opening import open_index
from baton.view.index.query import Condition
from baton.view.index.reading import place_stamp, summary_stamp, traces_in
from baton.view.index.searching import SearchRound
from baton.view.index.table import FORKED, KnownLine, TraceIndex
from baton.view.web.places import Place, find_places

_KEPT_TRACES = 4
_PLACES_SECONDS = 2.0
_PATIENCE_SECONDS = 1.0  # mostly it is read by then
_SEARCH_PATIENCE_SECONDS = 3.0


class Library:
    """All places, and the traces somebody looked at last."""

    def __init__(self, paths: Sequence[Path], *, cache: Path | None = None) -> None:
        """`cache`: a folder where lines about traces may be kept for the next time; None: in memory alone."""
        self._paths = paths
        self._cache = cache
        self._table: tuple[TraceIndex, Filler] | None = None
        self._regret: Measured | None = None
        self._price: Measured | None = None
        self._measures = ""
        self._kept: OrderedDict[tuple[str, str, str], Trace] = OrderedDict()
        self._forks: dict[tuple[str, str], Trace] = {}
        self._stamps: dict[tuple[str, str], tuple[str, str]] = {}  # with the directory's, when it was taken
        self._places: tuple[float, list[Place]] = (-math.inf, [])
        self._lock = threading.Lock()

    def places(self) -> list[Place]:
        """What is under the paths now, or was a moment ago: every question needs one."""
        then, found = self._places
        return self._places_now() if time.monotonic() - then > _PLACES_SECONDS else found

    def _places_now(self) -> list[Place]:
        self._places = (time.monotonic(), found := find_places(self._paths))
        return found

    def place(self, key: str) -> Place:
        """One that is not among those of a moment ago may have come since."""
        for places in (self.places, self._places_now):
            for place in places():
                if place.key == key:
                    return place
        raise UsageError(f"there is no place {key!r} here. It may have been moved or deleted.")

    def measure_with(self, regret: Measured | None, price: Measured | None, name: str) -> None:
        """What else lines tell; `name` changes with what these would say, and so do the lines that were kept."""
        self._regret, self._price, self._measures = regret, price, name

    @property
    def index(self) -> TraceIndex:
        return self._tables()[0]

    @property
    def filler(self) -> Filler:
        return self._tables()[1]

    def every(self, numbers: Sequence[int]) -> Iterator[tuple[str, Trace] | tuple[str, str]]:
        """The traces of these lines of the index, place by place; of what cannot be read, the place and why."""
        for key, wanted in self.index.homes(numbers).items():
            made = [self._forks[key, name] for name, file in wanted.items() if file == FORKED]
            yield from ((key, trace) for trace in made)
            kept = {name: file for name, file in wanted.items() if file != FORKED}
            try:
                yield from ((key, trace) for trace in traces_in(self.place(key).traces, kept))
            except (BatonError, OSError) as error:
                yield key, str(error)

    def rounds(self, words: str, where: Condition, sort: str) -> Iterator[SearchRound]:
        """What there is to search for some words, as the index comes to know it; ends when it knows all there is."""
        told: set[int] = set()
        complete = False
        while not complete:
            looked = self.filler.look(None, _SEARCH_PATIENCE_SECONDS)
            complete = looked and self.filler.progress()["complete"]
            old, broken = self.filler.behind() if looked else (self.index.places(), [])
            later = self.index.in_places(old)
            new = [
                number
                for number in self.index.order(where, sort)
                if number not in told and number not in later
            ]
            told.update(new)
            left, unsaid = self.index.may_say(words, new, broken)
            yield SearchRound(len(new), left, unsaid)

    def places_with(self, trace_id: str) -> list[str]:
        """Places that hold a trace of this name."""
        self.filler.look(None, _PATIENCE_SECONDS)
        return self.index.places_with(trace_id)

    def _tables(self) -> tuple[TraceIndex, Filler]:
        with self._lock:
            if self._table is None:
                index = open_index(self._cache, self._paths, self._measures)
                self._table = index, Filler(index, self.places, self._line)
            return self._table

    def _line(self, trace: Trace) -> ListedTrace:
        return line_of(trace, self._regret, self._price)

    def stamp(self, key: str, trace_id: str) -> str:
        """Changes whenever the trace may have changed."""
        if (key, trace_id) in self._forks:
            return "fork"
        path = self.place(key).traces
        now = place_stamp(path)
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
        self.index.put(key, [KnownLine(FORKED, FORKED, self._line(trace), time.time())])


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
        return summary_stamp(summary)
    return place_stamp(path)


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
