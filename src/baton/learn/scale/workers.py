"""Rollout workers: who plays a run's steps past the process that trains, whatever they are (processes, Ray actors).

A step's groups are dealt into lots by number alone, and lots are named for good. Any worker that is free takes the next
one, the oldest step first, so that several steps can be under way. A worker that dies is started again and its lot is
played again, under the same keys, from the same weights, from forgotten prompts: the same tokens and digits. One that
dies over and over, or does nothing for longer than `scale.patience`, ends the run with a sentence that says so.

Invariant: every lot of a step counts once, whoever played it and however often.
"""

from __future__ import annotations

import shutil
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from msgspec import Struct, field

from baton.errors import BatonError, CorruptError
from baton.learn.policy import Policy
from baton.learn.recipe import RolloutPart, ScalePart
from baton.learn.rollouts import RolloutGroup
from baton.learn.scale.workers_lots import (
    Lot,
    PlayedLot,
    ServedWeights,
    Told,
    WorkerAgain,
    WorkerReady,
    WorkerRefused,
    WorkersFailed,
    deal,
    told_of,
)
from baton.learn.scale.workers_scratch import make_scratch
from baton.learn.scale.workers_weights import WeightFiles
from baton.trace.formats.jsonl import read_bytes
from baton.trace.trace import Trace

_GLANCE_SECONDS = 0.5


class WorkerGone(Struct, frozen=True, kw_only=True):
    """A worker has ended, and not because it was told to."""

    why: str


class WorkerSeat(Protocol):
    """A worker as the trainer sees it: it takes lots, and tells of itself through a callback."""

    def give(self, lot: Lot) -> None:
        """Play this; the answer comes through the callback."""
        ...

    def kill(self) -> None:
        """End it now, whatever it does. That it is gone is told through the callback."""
        ...

    def end(self) -> None:
        """That was all: nothing is told any more."""
        ...


Tell = Callable[[WorkerSeat, "Told | WorkerGone"], None]


class Seats(Protocol):
    """Makes workers of one kind."""

    def make(self, number: int, folder: Path, tell: Tell) -> WorkerSeat:
        """Start a worker in this place. `folder` is for its files."""
        ...

    def close(self) -> None:
        """No more workers will be made."""
        ...


class _Step(Struct, kw_only=True):
    """A step under way."""

    version: int
    lots: dict[int, Lot]
    future: Future[list[RolloutGroup]]
    groups: dict[int, RolloutGroup] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    seconds: dict[int, float] = field(default_factory=dict)
    """Worker -> how long it was busy with this step."""


class _Place(Struct, kw_only=True):
    """Where a worker is, or is started again."""

    number: int
    seat: WorkerSeat | None = None
    ready: bool = False
    lot: Lot | None = None
    deaths: int = 0
    """In a row, without a lot between them."""
    progress: int = -1
    alive_at: float = 0.0
    """When it last got on."""
    why_killed: str = ""


class Workers:
    """Plays steps by workers of one kind: `baton.learn.rollouts.Players`."""

    def __init__(
        self,
        seats: Seats,
        policies: Mapping[str, Policy],
        scale: ScalePart,
        part_at: Callable[[int], RolloutPart],
        check: Callable[[Sequence[Trace]], None],
        note: Callable[[str], None] | None = None,
    ) -> None:
        """`check` looks at all traces of a step, and raises where nobody was answered. Nothing is started yet."""
        self._seats = seats
        self._policies = policies
        self._scale = scale
        self._part_at = part_at
        self._check = check
        self._note = note or (lambda _: None)
        self._lock = threading.RLock()
        self._places: list[_Place] = []
        self._steps: dict[int, _Step] = {}
        self._waiting: list[tuple[int, int]] = []
        """Lots that nobody plays yet, by step and number."""
        self._failed: BatonError | None = None
        self._closed = threading.Event()
        self._figures: dict[int, dict[str, Any]] = {}
        self._busy_seconds = 0.0
        self._deaths = 0
        self._again = 0
        self._weights: WeightFiles | None = None
        self._asks_servers = any(each.part.engine is not None for each in policies.values())
        self._served: dict[int, tuple[ServedWeights, ...]] = {}
        """Version -> how workers ask servers for it."""
        self._folder: Path | None = None
        self._held: IO[bytes] | None = None

    # -- players --------------------------------------------------------------------------------

    def play(self, number: int, version: int) -> list[RolloutGroup]:
        """A step's groups; waits for them."""
        return self.begin(number, version).result()

    def begin(self, number: int, version: int) -> Future[list[RolloutGroup]]:
        """Have a step played from now on, with weights that were published as `version`."""
        self._start()
        assert self._weights is not None
        weights, served = self._weights.of(version), self._served.get(version, ())
        dealt = deal(self._part_at(number).groups, self._scale.batch, self._scale.rollout_workers)
        step = _Step(
            version=version,
            lots={
                n: Lot(step=number, number=n, groups=groups, version=version, weights=weights, served=served)
                for n, groups in enumerate(dealt)
            },
            future=Future(),
        )
        with self._lock:
            if self._failed is not None:
                raise self._failed
            self._steps[number] = step
            self._waiting = sorted([*self._waiting, *((number, n) for n in step.lots)])
            self._deal()
        return step.future

    def publish(self, version: int) -> None:
        """Write the weights of this moment, as those after `version` steps; drop those that nobody needs any more."""
        self._start()
        assert self._weights is not None
        self._weights.write(version, self._policies)
        self._serve(version)
        with self._lock:
            needed = {step.version for step in self._steps.values()}
        self._weights.keep(needed)
        self._served = {
            each: told for each, told in self._served.items() if each in needed or each == version
        }

    def _serve(self, version: int) -> None:
        """Push to the servers that workers ask, where there are such."""
        if not self._asks_servers or version in self._served:
            return
        from baton.learn.scale.workers_served import served_weights  # a run without servers does not pass it

        self._served[version] = served_weights(self._policies)

    def figures(self, number: int) -> dict[str, Any]:
        """Who played a step and for how long; `busy_seconds` is of all since the last time this was asked."""
        with self._lock:
            told = self._figures.pop(number, {"workers": {}})
            told |= {
                "num_workers": self._scale.rollout_workers,
                "busy_seconds": self._busy_seconds,
                "worker_deaths": self._deaths,
                "lots_again": self._again,
            }
            self._busy_seconds, self._deaths, self._again = 0.0, 0, 0
        return told

    def close(self) -> None:
        """End all workers now."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            seats = [place.seat for place in self._places if place.seat is not None]
            self._places = []
            for step in self._steps.values():
                step.future.cancel()
        for seat in seats:
            seat.end()
        self._seats.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._held is not None:
            self._held.close()

    # -- workers --------------------------------------------------------------------------------

    def _start(self) -> None:
        """Once: the workers, and who looks after them."""
        with self._lock:
            if self._places or self._closed.is_set():
                return
            self._folder, self._held = make_scratch()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            self._weights = WeightFiles(self._folder)
            self._places = [_Place(number=n) for n in range(self._scale.rollout_workers)]
            for place in self._places:
                self._seat(place)
        threading.Thread(target=_watch, args=(weakref.ref(self), self._closed), daemon=True).start()
        if self._asks_servers:
            threading.Thread(target=_mend, args=(weakref.ref(self), self._closed), daemon=True).start()

    def _seat(self, place: _Place) -> None:
        """Start a worker in a place."""
        assert self._folder is not None
        place.ready, place.lot, place.progress = False, None, -1
        place.alive_at = time.monotonic()
        place.why_killed = ""
        try:
            place.seat = self._seats.make(place.number, self._folder, self._told)
        except BatonError as error:
            self._fail(error)

    def _deal(self) -> None:
        """Give lots to those who are free."""
        for place in self._places:
            if not self._waiting:
                return
            if place.ready and place.lot is None and place.seat is not None:
                step, number = self._waiting.pop(0)
                place.lot = self._steps[step].lots[number]
                place.alive_at = time.monotonic()
                place.seat.give(place.lot)

    def _told(self, seat: WorkerSeat, told: Told | WorkerGone) -> None:
        """What a worker says, from whatever thread."""
        try:
            self._hear(seat, told)
        except WorkersFailed as error:
            with self._lock:
                self._fail(error)
        except Exception as error:  # else whoever waits for the step would wait for ever
            with self._lock:
                self._fail(WorkersFailed(f"what rollout workers sent cannot be taken: {told_of(error)}"))

    def _hear(self, seat: WorkerSeat, told: Told | WorkerGone) -> None:
        found = None
        if isinstance(told, PlayedLot):
            found = self._decoded(seat, told)
            self._check_held(told)
        with self._lock:
            place = next((each for each in self._places if each.seat is seat), None)
            if place is None or self._failed is not None:
                return
            if isinstance(told, WorkerGone):
                self._gone(place, told.why)
            elif isinstance(told, WorkerRefused):
                self._fail(WorkersFailed(f"rollout worker {place.number + 1}: {told.why}"))
            elif isinstance(told, WorkerAgain):
                self._deaths += 1
                self._again += place.lot is not None
                self._note(f"rollout worker {place.number + 1} {told.why}")
            elif isinstance(told, WorkerReady):
                place.ready, place.alive_at = True, time.monotonic()
            elif isinstance(told, PlayedLot):
                if found is None:
                    place.why_killed = "sent traces that are damaged"
                    seat.kill()
                    return
                self._played(place, told, found)
            elif told.done != place.progress:
                place.progress, place.alive_at = told.done, time.monotonic()
            self._deal()

    def _decoded(self, seat: WorkerSeat, told: PlayedLot) -> dict[int, RolloutGroup] | None:
        """The groups of a lot, where they are whole; decoded beside whatever else goes on."""
        with self._lock:
            lot = next((each.lot for each in self._places if each.seat is seat), None)
        if lot is None or lot.key != told.key:
            return {}
        try:
            return groups_in(told, lot)
        except BatonError:
            return None

    def _check_held(self, told: PlayedLot) -> None:
        """What was answered by a server counts where that still has the weights that were verified."""
        if not self._asks_servers:
            return
        from baton.learn.scale.workers_served import check_held

        with self._lock:
            step = self._steps.get(told.step)
        if step is not None and told.number in step.lots:
            check_held(step.lots[told.number], self._policies)

    def _played(self, place: _Place, told: PlayedLot, groups: Mapping[int, RolloutGroup]) -> None:
        if place.lot is None or place.lot.key != told.key:
            return  # it counts once
        place.lot, place.deaths = None, 0
        place.alive_at = time.monotonic()
        self._busy_seconds += told.seconds
        step = self._steps.get(told.step)
        if step is None or told.number in step.done:
            return
        step.done.add(told.number)
        step.groups |= groups
        step.seconds[place.number] = step.seconds.get(place.number, 0.0) + told.seconds
        if len(step.done) < len(step.lots):
            return
        del self._steps[told.step]
        workers = {str(n): {"busy_seconds": each} for n, each in sorted(step.seconds.items())}
        self._figures[told.step] = {"workers": workers}
        whole = [step.groups[n] for n in sorted(step.groups)]
        try:
            self._check([trace for group in whole for trace in group.traces])
        except BatonError as error:
            _settle(step.future, error)
        else:
            _settle(step.future, whole)

    # -- what goes wrong ------------------------------------------------------------------------

    def _gone(self, place: _Place, why: str) -> None:
        """A worker is no more: its lot waits again, and another one is started in its place."""
        why = place.why_killed or why
        place.seat = None
        place.deaths += 1
        self._deaths += 1
        lost = place.lot
        place.lot = None
        if lost is not None:
            self._again += 1
            self._waiting = sorted([*self._waiting, lost.key])
        doing = "before it was ready" if lost is None else f"while it played {_named(lost)}"
        if place.deaths > self._scale.restarts:
            self._fail(
                WorkersFailed(
                    f"rollout worker {place.number + 1} died {place.deaths} times in a row, the last time {doing}: it "
                    f"{why}. Mend that and type: baton train --resume --out DIR; or, with as many as there is memory "
                    "for: --set scale.rollout_workers=N"
                )
            )
            return
        again = f"; {_named(lost)} is played again" if lost is not None else ""
        self._note(f"rollout worker {place.number + 1} {why} {doing}; it is started again{again}")
        self._seat(place)

    def _fail(self, error: BatonError) -> None:
        """Nothing more can be played."""
        self._failed = error
        for step in self._steps.values():
            _settle(step.future, error)
        self._steps = {}
        self._waiting = []

    def mend(self) -> bool:
        """Start servers of our own again that died; False: that failed, and nothing more can be played."""
        from baton.learn.scale.workers_served import mend_servers

        try:
            mend_servers(self._policies)
        except BatonError as error:
            with self._lock:
                self._fail(error)
            return False
        return True

    def look(self) -> None:
        """End workers that hang: those that are busy, or being made, and have not got on for too long."""
        with self._lock:
            now = time.monotonic()
            for place in self._places:
                waits = place.ready and place.lot is None
                if waits or place.seat is None or place.why_killed:
                    continue
                if now - place.alive_at > self._scale.patience:
                    place.why_killed = (
                        f"did not get on for {self._scale.patience:g} s (scale.patience) and was ended"
                    )
                    place.seat.kill()


def _watch(workers: weakref.ref[Workers], closed: threading.Event) -> None:
    while not closed.wait(_GLANCE_SECONDS):
        if (found := workers()) is None:
            return
        found.look()
        del found


def _mend(workers: weakref.ref[Workers], closed: threading.Event) -> None:
    while not closed.wait(_GLANCE_SECONDS):
        if (found := workers()) is None:
            return
        if not found.mend():
            return
        del found


def _settle(future: Future[list[RolloutGroup]], result: list[RolloutGroup] | BatonError) -> None:
    with suppress(InvalidStateError):  # whoever waited has gone
        if isinstance(result, BatonError):
            future.set_exception(result)
        else:
            future.set_result(result)


def _named(lot: Lot) -> str:
    """A lot in words."""
    few = ", ".join(map(str, lot.groups[:4])) + (", …" if len(lot.groups) > 4 else "")
    return f"group{'' if len(lot.groups) == 1 else 's'} {few} of step {lot.step}"


def groups_in(found: PlayedLot, lot: Lot) -> dict[int, RolloutGroup]:
    """Group -> its rollouts, checked: a trace that is none of the lot's is an error."""
    traces = list(read_bytes(found.traces))
    if len(found.sizes) != len(lot.groups) or sum(found.sizes) != len(traces):
        raise CorruptError(
            f"a worker gave {len(traces)} traces in {len(found.sizes)} groups for the {len(lot.groups)} groups of a "
            f"lot of step {lot.step}."
        )
    made: dict[int, RolloutGroup] = {}
    at = 0
    for group, size in zip(lot.groups, found.sizes, strict=True):
        mine = tuple(traces[at : at + size])
        at += size
        begin = f"step-{lot.step:04d}/{group:02d}-"
        for trace in mine:
            if not trace.trace_id.startswith(begin):
                raise CorruptError(
                    f"a worker gave trace {trace.trace_id} for group {group} of step {lot.step}."
                )
        made[group] = RolloutGroup(step=lot.step, version=lot.version, traces=mine)
    return made
