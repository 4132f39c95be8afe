"""What keeps the index up to date: one thread that reads what is new, a lot of one place after a lot of another.

It begins with the first look at a table, goes on while somebody looks, and rests when nobody does. The place that
somebody waits for comes first. Invariant: what is said of progress is what was read; a place that cannot be read says
so and takes no other away.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from baton.errors import BatonError
from baton.trace.notes import Notebook
from baton.view.index.reading import LineLot, LineOf, lots, place_stamp
from baton.view.index.table import TraceIndex
from baton.view.web.places import Place

_REST_SECONDS = 0.5
_AWAY_SECONDS = 20.0  # nobody has looked for so long: nothing is read until somebody does
_SLOWER = 4.0  # looking at files takes at most one part in so many of the time
_FULL = "the disk of its cache is full, or the cache was taken away"


class _Reading:
    """A place, as far as it has been read."""

    def __init__(self, place: Place, stamp: str) -> None:
        self.place = place
        self.stamp = stamp
        self.work: Iterator[LineLot] | None = None
        self.goal = ""
        self.left = 0
        self.again = False  # whether something of it was known before
        self.problem: str | None = None
        self.noted = ""


class Filler:
    """Reads places into an index. `places`: what is there now; `line_of`: the line about a trace."""

    def __init__(self, index: TraceIndex, places: Callable[[], list[Place]], line_of: LineOf) -> None:
        self.index = index
        self.line_of = line_of
        self._places = places
        self._readings: dict[str, _Reading] = {}
        self._first: str | None = None
        self._looked = 0.0
        self._asked = 0
        self._seen = 0  # of those who asked, how many had what is there looked at since
        self._thread: threading.Thread | None = None
        self._turn = threading.Condition()

    def look(self, place: str | None = None, seconds: float = 0.0) -> bool:
        """Somebody looks at the table, or at one place of it; waits so long for what is new to be read, and says
        whether the files have been looked at since."""
        end = time.monotonic() + seconds
        with self._turn:
            self._looked = time.monotonic()
            self._first = place or self._first
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="index of traces")
                self._thread.start()
            if not seconds:
                return False
            self._asked += 1
            mine = self._asked
            self._turn.notify_all()
            while time.monotonic() < end and not (self._seen >= mine and self._done(place)):
                self._turn.wait(max(0.0, end - time.monotonic()))
            return self._seen >= mine

    def progress(self, place: str | None = None) -> dict[str, Any]:
        """How far it is, and which places cannot be read; of all, or of one place."""
        readings = [one for one in list(self._readings.values()) if place in (None, one.place.key)]
        return {
            "places": len(readings),
            "reading": sum(one.work is not None for one in readings),
            "left": sum(one.left for one in readings),
            "complete": self._seen > 0
            and all(one.work is None for one in readings)
            and bool(readings or not place),
            "problems": [{"place": one.place.key, "why": one.problem} for one in readings if one.problem],
        }

    def behind(self) -> tuple[list[str], list[str]]:
        """Places of which what is known may be old, as they are read again; and those that cannot be read."""
        old = [key for key, one in self._readings.items() if one.work is not None and one.again]
        return old, [key for key, one in self._readings.items() if one.work is None and one.problem]

    def _done(self, place: str | None) -> bool:
        if place is None:
            return all(one.work is None for one in self._readings.values())
        return place in self._readings and self._readings[place].work is None

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                busy = self._round()
            except sqlite3.Error as error:
                self._give_up(error)
                return
            taken = time.monotonic() - began
            with self._turn:
                if not busy and self._asked == self._seen:
                    self._turn.wait(max(_REST_SECONDS, _SLOWER * taken))
                if time.monotonic() - self._looked > _AWAY_SECONDS and self._asked == self._seen and not busy:
                    self._thread = None
                    return

    def _give_up(self, error: sqlite3.Error) -> None:
        with self._turn:
            for one in self._readings.values():
                one.work, one.problem = None, f"the index cannot be written: {error} ({_FULL})."
            self._seen = self._asked
            self._thread = None
            self._turn.notify_all()

    def _round(self) -> bool:
        """Look what changed, and read on until everything has been read or it is time to look again."""
        asked = self._asked
        self._look_at_places()
        with self._turn:
            self._seen = asked
            self._turn.notify_all()
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            wanted = self._readings.get(self._first or "")
            busy = [one for one in self._readings.values() if one.work is not None]
            if not busy:
                return False
            self._read_on(wanted if wanted is not None and wanted.work is not None else busy[0])
            with self._turn:
                self._turn.notify_all()
        return True

    def _look_at_places(self) -> None:
        there = {place.key: place for place in self._places()}
        for key in [key for key in self.index.places() if key not in there]:
            self.index.drop_place(key)
            self._readings.pop(key, None)
        for key, place in there.items():
            reading = self._readings.get(key)
            if reading is None or reading.place != place:
                path = str(place.path.resolve())
                reading = self._readings[key] = _Reading(place, self.index.begin(key, path))
            self._look_at(reading)

    def _look_at(self, reading: _Reading) -> None:
        place = reading.place
        if place.training and not place.has_traces:  # it has only just begun
            return
        try:
            now = place_stamp(place.traces)
            if reading.work is None and now != reading.stamp:
                known = self.index.known(place.key)
                reading.again = bool(known)
                reading.goal, reading.problem = now, None
                reading.work = lots(place.traces, known, self.line_of)
            self._take_labels(reading)
        except BatonError as error:
            self._failed(reading, error)

    def _take_labels(self, reading: _Reading) -> None:
        book = Notebook(reading.place.path)
        stamp = book.stamp()
        if stamp == reading.noted:
            return
        labels: dict[str, dict[str, None]] = {}
        for note in book.all():
            labels.setdefault(note.trace, {}).update(dict.fromkeys(note.labels or ("noted",)))
        self.index.label(reading.place.key, {trace: "\n".join(told) for trace, told in labels.items()})
        reading.noted = stamp

    def _read_on(self, reading: _Reading) -> None:
        key = reading.place.key
        assert reading.work is not None
        try:
            lot = next(reading.work)
        except StopIteration:
            reading.work, reading.left, reading.stamp = None, 0, reading.goal
            reading.noted = ""  # lines that are new may have labels
            self.index.finish(key, reading.goal)
        except BatonError as error:
            self._failed(reading, error)
        except OSError as error:
            self._failed(reading, BatonError(f"{reading.place.traces} cannot be read: {error.strerror}."))
        else:
            reading.left = lot.left
            if lot.gone:
                self.index.drop(key, lot.gone)
            if lot.lines:
                self.index.put(key, lot.lines)
            if lot.read is not None:
                self.index.mark_read(key, *lot.read)

    def _failed(self, reading: _Reading, error: BatonError) -> None:
        reading.work, reading.left, reading.stamp = None, 0, reading.goal
        reading.problem = str(error)
