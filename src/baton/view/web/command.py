"""What the page may have done to runs: start one, steer those that go on, end one that was started here.

Only where the viewer was begun with `--steer`. Whatever is done to a run goes the way that `baton steer` goes, so it is
in the run's trace; places are those of the library, and never paths that a page or a trace names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from baton.compose import steering
from baton.compose.started_runs import RunOrder, StartedRuns
from baton.errors import BatonError, UsageError
from baton.trace.formats.recognition import detect, stores_in
from baton.trace.formats.sqlite.store_read import TraceSummary, list_traces
from baton.view.web.places import Place
from baton.view.web.traces import Library

_WAIT_SECONDS = 5.0
_NOT_HERE = "runs are not steered from here. Type: baton view PATH --steer"


class Command:
    """Runs that go on under the places of a library, and what is done to them."""

    def __init__(self, library: Library, started: StartedRuns | None) -> None:
        self._library = library
        self._started = started

    @property
    def allowed(self) -> bool:
        """Whether anything may be done from the page."""
        return self._started is not None

    def live(self) -> dict[str, Any]:
        """Every run that is not finished, with how those stand that are at work; and what was started here."""
        runs: list[dict[str, Any]] = []
        for place in self._library.places():
            if not place.training:
                runs += [
                    _told(place, store, summary)
                    for store in _stores(place.path)
                    for summary in _listed(store)
                    if not summary.finished
                ]
        runs.sort(key=lambda run: not run["working"])
        return {"runs": runs, "started": self._begun().told(), "choices": self._begun().choices()}

    def live_stamp(self) -> str:
        """Changes whenever one of them does."""
        found = self.live()
        found.pop("choices")
        return blake2b(msgspec.json.encode(found), digest_size=8).hexdigest()

    def standing(self, place: str, trace_id: str) -> dict[str, Any]:
        """How one run stands."""
        store, summary = self._run(place, trace_id)
        return _told(self._library.place(place), store, summary)

    def standing_stamp(self, place: str, trace_id: str) -> str:
        """Changes whenever that does."""
        return blake2b(msgspec.json.encode(self.standing(place, trace_id)), digest_size=8).hexdigest()

    def is_at_work(self, place: str, trace_id: str) -> bool:
        """Whether the run of a trace goes on as one looks."""
        return steering.is_at_work(self._library.place(place).traces, trace_id)

    def steer(self, query: Mapping[str, str], wish: steering.Wish) -> dict[str, Any]:
        """Do something to a run, and say what came of it."""
        self._begun()
        trace_id = query.get("id", "")
        store, summary = self._run(query.get("place", ""), trace_id)
        if summary.finished:
            raise UsageError(f"{trace_id} has ended, so there is nothing to steer.")
        return asyncio.run(steering.carry(store, trace_id, wish, _WAIT_SECONDS))

    def start(self, _query: Mapping[str, str], order: RunOrder) -> dict[str, Any]:
        """Begin a run."""
        return self._begun().start(order)

    def end(self, name: str) -> dict[str, Any]:
        """End a run that was started here."""
        return self._begun().end(name)

    def _begun(self) -> StartedRuns:
        if self._started is None:
            raise UsageError(_NOT_HERE)
        return self._started

    def _run(self, place: str, trace_id: str) -> tuple[Path, TraceSummary]:
        for store in _stores(self._library.place(place).path):
            for summary in _listed(store):
                if summary.trace_id == trace_id:
                    return store, summary
        raise UsageError(f"{place} has no run {trace_id[:80]!r} that can be steered.")


def _stores(path: Path) -> list[Path]:
    if path.is_dir():
        return list(stores_in(path))
    try:
        return [path] if detect(path) == "sqlite" else []
    except BatonError:
        return []


def _listed(store: Path) -> list[TraceSummary]:
    try:
        return list(list_traces(store))
    except (BatonError, OSError):  # what cannot be read has its say on its own page
        return []


def _told(place: Place, store: Path, summary: TraceSummary) -> dict[str, Any]:
    standing = steering.standing_in(store, summary.trace_id)
    return {
        "place": place.key,
        "id": summary.trace_id,
        "task": summary.task_id,
        "events": summary.num_events,
        "finished": summary.finished,
        "working": standing is not None and not summary.finished,
        **(standing or {}),
    }
