"""Rollout workers as threads of the test's own process: the real worker with its model, and deaths that are planned."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton.compose import rollout_worker
from baton.compose.rollout_worker import make_worker
from baton.learn.recipe import Recipe
from baton.learn.scale.workers import Tell, WorkerGone
from baton.learn.scale.workers_lots import Lot, WorkerRefused, WorkerSetup, decode_told, encode, told_of

_making = threading.Lock()


def workers_as_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ThreadSeats]]:
    """Workers are threads from when it is called on; gives what made them."""
    made: list[ThreadSeats] = []

    def use(**how: Any) -> list[ThreadSeats]:
        def seats(recipe: Recipe, setup: Callable[[int], WorkerSetup]) -> ThreadSeats:
            made.append(ThreadSeats(setup, make_worker, **how))
            return made[-1]

        monkeypatch.setattr(rollout_worker, "_seats", seats)
        return made

    return use


class ThreadSeats:
    """Makes them. `deaths`: the chance of one at each moment, drawn from a seed."""

    def __init__(
        self,
        setup: Callable[[int], WorkerSetup],
        make: Callable[[WorkerSetup], Any],
        *,
        deaths: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._setup = setup
        self._make = make
        self._draw = random.Random(seed)
        self._deaths = deaths
        self.died: list[str] = []
        self.lots: list[tuple[int, tuple[int, ...]]] = []
        """Worker and groups, in the order in which they were given."""

    def make(self, number: int, folder: Path, tell: Tell) -> ThreadSeat:
        return ThreadSeat(self, self._setup(number), self._make, tell)

    def dies(self, moment: str) -> bool:
        if self._draw.random() >= self._deaths:
            return False
        self.died.append(moment)
        return True

    def close(self) -> None: ...


class ThreadSeat:
    """One of them."""

    def __init__(
        self, seats: ThreadSeats, setup: WorkerSetup, make: Callable[[WorkerSetup], Any], tell: Tell
    ) -> None:
        self._seats, self._number, self._tell = seats, setup.number, tell
        self._lots: queue.Queue[Lot | None] = queue.Queue()
        threading.Thread(target=self._guarded, args=(setup, make), daemon=True).start()

    def give(self, lot: Lot) -> None:
        self._seats.lots.append((self._number, lot.groups))
        self._lots.put(lot)

    def kill(self) -> None:
        self._lots.put(None)
        self._tell(self, WorkerGone(why="was ended"))

    def end(self) -> None:
        self._lots.put(None)

    def _guarded(self, setup: WorkerSetup, make: Callable[[WorkerSetup], Any]) -> None:
        try:
            self._run(setup, make)
        except Exception as error:
            self._tell(self, WorkerRefused(told_of(error)))

    def _run(self, setup: WorkerSetup, make: Callable[[WorkerSetup], Any]) -> None:
        if self._seats.dies("ready"):
            self._tell(self, WorkerGone(why="died early"))
            return
        with _making:  # transformers opens one model at a time in a process
            worker = make(setup)
        try:
            self._play(worker)
        finally:
            worker.close()

    def _play(self, worker: Any) -> None:
        self._tell(self, worker.ready())
        while (lot := self._lots.get()) is not None:
            if self._seats.dies("weights"):
                break
            found = decode_told(encode(worker.play(lot)))
            if self._seats.dies("played"):
                break
            self._tell(self, found)
        else:
            return
        self._tell(self, WorkerGone(why="died"))
