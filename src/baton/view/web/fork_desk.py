"""Forks that are made from the page: one after the other, each with how far it is, and each can be called off.

One at a time: a fork sets a team up and runs models, which several at once would do on top of each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from baton.errors import UsageError
from baton.trace.formats.sqlite.store import write_store
from baton.trace.trace import Trace
from baton.view.web.attached import ForkWatch

_AT_ONCE = 16


class ForkDesk:
    """Who is at work on a fork, and who waits."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._jobs: dict[str, ForkWatch] = {}

    @contextmanager
    def turn(self, job: str) -> Iterator[ForkWatch]:
        """The body makes a fork, when all before it are made. `job` is what the page calls it."""
        watch = ForkWatch()
        with self._guard:
            if job in self._jobs:
                raise UsageError(f"the fork {job[:40]!r} is being made already.")
            if len(self._jobs) >= _AT_ONCE:
                raise UsageError(f"{_AT_ONCE} forks are waiting already. Wait for one, or call one off.")
            self._jobs[job] = watch
        try:
            with self._turn:
                watch.check()
                watch.began = time.monotonic()
                yield watch
        finally:
            with self._guard:
                self._jobs.pop(job, None)

    def told(self, job: str) -> dict[str, Any]:
        """How far a fork is."""
        with self._guard:
            watch = self._jobs.get(job)
            before = list(self._jobs).index(job) if watch is not None else 0
        if watch is None:
            return {"state": "none"}
        if watch.began is None:
            return {"state": "waiting", "before": before}
        return {"state": "running", "seconds": time.monotonic() - watch.began, "events": watch.events}

    def cancel(self, job: str) -> dict[str, Any]:
        """Call a fork off; it ends at the next thing it does."""
        with self._guard:
            watch = self._jobs.get(job)
        if watch is not None:
            watch.cancelled.set()
        return {"cancelled": watch is not None}


def save_fork(place: Path, trace: Trace) -> Path:
    """Keep a fork on disk, in a store beside what it was made of; returns where."""
    beside = place.parent / f"{place.stem if place.is_file() else place.name}-forks"
    try:
        beside.mkdir(exist_ok=True)
        write_store([trace], beside / "forks.db")
    except OSError as error:
        raise UsageError(f"the fork cannot be written to {beside}: {error.strerror}.") from None
    return beside
