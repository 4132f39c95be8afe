"""Rollout workers as actors of a Ray cluster: the same worker in each, laid out by a placement group.

Ray starts an actor again where its process or its machine died, and repeats what it was asked for; what it gives up on
is started anew by `Workers`. A lot is named for good, so none of that changes what is played. Weights go through Ray's
object store, so machines need no common disk, and are checked by the worker.

Ray 2.60; untried: GPUs, clusters of more than one machine (two raylets on one were).
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from baton.errors import BatonError, UsageError
from baton.learn.recipe import ScalePart
from baton.learn.scale.workers import Tell, WorkerGone
from baton.learn.scale.workers_lots import (
    Lot,
    WorkerAgain,
    WorkerBeat,
    WorkerRefused,
    WorkerSetup,
    WorkersFailed,
    decode_told,
    encode,
    told_of,
)

_GLANCE_SECONDS = 1.0
_PLACED_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_REACH_SECONDS = 60.0
"""An actor that could not be asked for so long has lost its machine, or its place: others play its lot."""


def import_ray() -> Any:
    """Ray, or what to type for it."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise UsageError(
            f'scale.workers = "ray" needs Ray, which is not installed ({error}). Type: pip install "baton-rl[ray]"; '
            "or, on one machine, leave scale.workers out."
        ) from None


class RayWorker:
    """What an actor is: a worker that is made when it is first asked."""

    def __init__(self, setup: WorkerSetup, make: str) -> None:
        self._setup = setup
        self._make = make
        self._worker: Any = None
        self._guard = threading.Lock()

    def ready(self) -> bytes:
        """That it is made, or why it cannot be."""
        return self._answer(lambda: self._made().ready())

    def play(self, lot: Lot, *contents: bytes) -> bytes:
        """A lot's traces, or why not. `contents`: its weights."""
        return self._answer(lambda: self._made().play(lot, contents))

    def done(self) -> tuple[int, int]:
        """Its process, and how far that has got."""
        return os.getpid(), 0 if self._worker is None else int(self._worker.done)

    def _made(self) -> Any:
        with self._guard:
            if self._worker is None:
                module, _, name = self._make.partition(":")
                self._worker = getattr(import_module(module), name)(self._setup)
            return self._worker

    def _answer(self, work: Callable[[], Any]) -> bytes:
        try:
            return encode(work())
        except BatonError as error:
            return encode(WorkerRefused(str(error)))
        except Exception as error:
            return encode(WorkerRefused(told_of(error)))


class RaySeats:
    """Makes actors, each in its bundle of one placement group."""

    def __init__(self, setup: Callable[[int], WorkerSetup], make: str, scale: ScalePart) -> None:
        """`make` names the function that makes a worker, as module:name."""
        self.ray = import_ray()
        self._setup = setup
        self._make = make
        self._scale = scale
        self._group: Any = None
        self._own = False
        """Whether the connection to the cluster is this one's to end."""
        self._guard = threading.Lock()
        self._objects: dict[str, Any] = {}
        """Path of weights -> where the object store has them."""

    def make(self, number: int, folder: Path, tell: Tell) -> RaySeat:  # noqa: ARG002 (weights go another way)
        if self._group is None:
            self._connect()
            self._group = self._placed()
        ray = self.ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=number
        )
        actor = (
            ray.remote(RayWorker)
            .options(
                num_cpus=self._scale.worker_cpus,
                num_gpus=self._scale.worker_gpus,
                max_restarts=self._scale.restarts,
                max_task_retries=self._scale.restarts,
                max_concurrency=3,  # asked how far it has got while it plays
                scheduling_strategy=strategy,
            )
            .remote(self._setup(number), self._make)
        )
        return RaySeat(self, number, actor, tell)

    def weights(self, lot: Lot) -> list[Any]:
        """The lot's weights in the object store, each put there once."""
        with self._guard:
            for path in [path for path in self._objects if not Path(path).exists()]:
                del self._objects[path]  # no play needs that version any more
            for each in lot.weights:
                if each.path not in self._objects:
                    self._objects[each.path] = self.ray.put(Path(each.path).read_bytes())
            return [self._objects[each.path] for each in lot.weights]

    def close(self) -> None:
        self._objects = {}
        if self._group is not None:
            from ray.util import remove_placement_group

            with suppress(Exception):  # the cluster may have gone first
                remove_placement_group(self._group)
            self._group = None
        if self._own:
            self.ray.shutdown()
            self._own = False

    def _connect(self) -> None:
        if self.ray.is_initialized():
            return
        address = self._scale.address
        try:
            _check_reachable(address)  # Ray itself would try for minutes
            self.ray.init(
                address=address or "local", log_to_driver=False, include_dashboard=False if address is None else None,
                logging_level="ERROR",
            )  # fmt: skip
        except (OSError, RuntimeError, ValueError) as error:
            first = str(error).partition("\n")[0]
            raise WorkersFailed(
                f"no Ray cluster can be reached at {address or 'this machine'}: {first}. Start one: "
                "ray start --head --port=6379, then --set scale.address=HOST:6379"
            ) from error
        self._own = True

    def _placed(self) -> Any:
        """A placement group with room for all workers, once the cluster has given it."""
        from ray.util import placement_group

        scale = self._scale
        bundle = {"CPU": scale.worker_cpus} | ({"GPU": scale.worker_gpus} if scale.worker_gpus else {})
        group = placement_group([bundle] * scale.rollout_workers, strategy=scale.placement)
        if not group.wait(_PLACED_SECONDS):
            has = self.ray.cluster_resources()
            machines = sum(bool(node["Alive"]) for node in self.ray.nodes())
            raise WorkersFailed(
                f"the Ray cluster has no room for {scale.rollout_workers} workers of {_words(bundle)} "
                f"({scale.placement}): it has {has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs on "
                f"{machines} machines. Add machines (ray start --address=HOST:6379), or ask for less: "
                "--set scale.rollout_workers=N"
            )
        return group


def _check_reachable(address: str | None) -> None:
    """Raise where nobody listens at HOST:PORT."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()


def _words(bundle: dict[str, float]) -> str:
    return " and ".join(f"{amount:g} {what}" for what, amount in bundle.items())


class RaySeat:
    """An actor as the trainer sees it."""

    def __init__(self, seats: RaySeats, number: int, actor: Any, tell: Tell) -> None:
        self.actor = actor
        self._seats = seats
        self._ray = seats.ray
        self._tell = tell
        self._lots: queue.Queue[Lot | None] = queue.Queue()
        self._ended = False
        self.pid: int | None = None
        """The actor's process, as far as is known."""
        threading.Thread(target=self._run, name=f"baton-actor-{number}", daemon=True).start()

    def give(self, lot: Lot) -> None:
        self._lots.put(lot)

    def kill(self) -> None:
        with suppress(Exception):  # it may have ended already
            self._ray.kill(self.actor)

    def end(self) -> None:
        self._ended = True
        self.kill()
        self._lots.put(None)

    def _run(self) -> None:
        try:
            self._wait(self.actor.ready.remote())
            while (lot := self._lots.get()) is not None:
                self._wait(self.actor.play.remote(lot, *self._seats.weights(lot)))
        except Exception as error:
            if not self._ended:
                self.kill()
                self._tell(self, WorkerGone(why=_ending(error)))

    def _wait(self, asked: Any) -> None:
        """Until it has answered; meanwhile its progress is told. Raises where Ray gives it up."""
        heard = time.monotonic()
        while not self._ray.wait([asked], timeout=_GLANCE_SECONDS)[0]:
            if self._look():
                heard = time.monotonic()
            elif self.pid is not None and time.monotonic() - heard > _REACH_SECONDS:
                raise TimeoutError(
                    f"it could not be reached for {_REACH_SECONDS:g} s; its machine may have gone"
                )
        told = decode_told(self._ray.get(asked))
        self._look()
        self._tell(self, told)

    def _look(self) -> bool:
        """Ask how far it has got, and whether it is still the same process; whether it answered."""
        asked = self.actor.done.remote()
        if not self._ray.wait([asked], timeout=_GLANCE_SECONDS)[0]:
            return False
        with suppress(Exception):  # it is being started again
            pid, done = self._ray.get(asked)
            if self.pid not in (None, pid):
                self._tell(self, WorkerAgain("died and was started again by Ray; its lot is played again"))
            self.pid = pid
            self._tell(self, WorkerBeat(done))
            return True
        return False


def _ending(error: Exception) -> str:
    """Why an actor is given up, in one line."""
    kind = type(error).__name__
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    known = {
        "OutOfMemoryError": "was ended by Ray because its machine's memory was short",
        "ActorDiedError": "died",
        "ActorUnavailableError": "cannot be reached",
        "TimeoutError": "is gone",
    }
    return f"{known.get(kind, f'failed with {kind}')} ({said[0] if said else kind})"
