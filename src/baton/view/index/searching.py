"""Searches in the content of many traces: each reads its traces one after the other in a thread of its own, and says
how far it is and what it found so far. Content is kept nowhere: it is read again for each search, but for traces of
which the index knows that the words are not in them (`words`).

Invariant: no trace is left out without being counted: `read` and `ruled_out` of `total`, and what could not be read by
name.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from baton.errors import BatonError
from baton.trace.trace import Trace
from baton.view.index.matching import hits_in, matcher

_AT_ONCE = 3
_AWAY_SECONDS = 30.0
_EXCERPTS = 3

Unread = tuple[str, str]
"""A place or trace, and why it could not be read."""
Traces = Callable[[Sequence[int]], Iterator[tuple[str, Trace] | Unread]]
"""The traces of some lines of the index."""


class SearchRound(Struct, frozen=True):
    """Lines to search, as far as the index has them by now."""

    total: int
    """How many there are."""
    left: Sequence[int]
    """Those in whose traces the words may stand."""
    unsaid: int
    """How many of these are there because the index does not know what is said in them."""


Rounds = Callable[[], Iterator[SearchRound]]


class FoundTrace(Struct, frozen=True, kw_only=True):
    """A trace in which the words stand."""

    place: str
    id: str
    events: int
    """In how many of its events."""
    times: int
    first: str
    """The id of the first event."""
    excerpts: tuple[tuple[str, tuple[str, str, str]], ...]
    """Of the first few: said, prompt or answer, and the words with what stands around them."""


class ContentSearch:
    """One search, while it goes on and afterwards."""

    def __init__(self, words: str, rounds: Rounds, traces: Traces) -> None:
        """`rounds`: what there is to search, until all of it has been told."""
        self._pattern = matcher(words)
        self._rounds = rounds
        self._traces = traces
        self.total = 0
        self.ruled_out = 0
        self.unsaid = 0
        self.read = 0
        self.found: list[FoundTrace] = []
        self.times = 0
        self.problems: list[Unread] = []
        self.done = False
        self.asked = time.monotonic()
        self.stopped = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="search in traces").start()

    def told(self, start: int, most: int) -> dict[str, Any]:
        """How far it is, and some of what it found."""
        self.asked = time.monotonic()
        return {
            "read": self.read,
            "total": self.total,
            "ruled_out": self.ruled_out,
            "unsaid": self.unsaid,
            "found": len(self.found),
            "times": self.times,
            "done": self.done,
            "problems": self.problems[:20],
            "unread": len(self.problems),
            "rows": self.found[start : start + most],
        }

    def _run(self) -> None:
        try:
            for some in self._rounds():
                self.total += some.total
                self.ruled_out += some.total - len(some.left)
                self.unsaid += some.unsaid
                if self._is_given_up():
                    return
                for place, one in self._traces(some.left):
                    if self._is_given_up():
                        return
                    if isinstance(one, str):
                        self.problems.append((place, one))
                        continue
                    self._look(place, one)
            self.done = not self._is_given_up()
        except (BatonError, OSError) as error:
            self.problems.append(("the search", str(error)))
            self.done = True
        finally:
            self.stopped.set()

    def _is_given_up(self) -> bool:
        return self.stopped.is_set() or time.monotonic() - self.asked > _AWAY_SECONDS

    def _look(self, place: str, trace: Trace) -> None:
        hits = hits_in(trace, self._pattern)
        self.read += 1
        if not hits:
            return
        times = sum(hit.times for hit in hits)
        self.found.append(
            FoundTrace(
                place=place,
                id=trace.trace_id,
                events=len({hit.at for hit in hits}),
                times=times,
                first=trace.events[hits[0].at].id,
                excerpts=tuple((hit.where, hit.excerpt) for hit in hits[:_EXCERPTS]),
            )
        )
        self.times += times


class Searches:
    """The searches that somebody is looking at; a new one ends the oldest."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, ContentSearch] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, name: str, begin: Callable[[], ContentSearch]) -> ContentSearch:
        """The search of this name; a new one, where there is none or it was given up."""
        with self._lock:
            search = self._kept.get(name)
            if search is None or (search.stopped.is_set() and not search.done):
                search = self._kept[name] = begin()
            self._kept.move_to_end(name)
            while len(self._kept) > _AT_ONCE:
                self._kept.popitem(last=False)[1].stopped.set()
            return search

    def stamp(self, name: str) -> str:
        """Changes while a search goes on."""
        with self._lock:
            search = self._kept.get(name)
        if search is None:
            return "none"
        search.asked = time.monotonic()
        far = f"{search.total} {search.read} {search.ruled_out} {len(search.found)}"
        return f"{far} {search.stopped.is_set()} {search.done}"

    def forget(self, name: str) -> None:
        with self._lock:
            search = self._kept.pop(name, None)
        if search is not None:
            search.stopped.set()
