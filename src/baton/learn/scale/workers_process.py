"""Rollout workers as processes of this machine: no more than a socket between them and the trainer.

A message is its length, its checksum and its content; one that was cut off with its sender is none. A worker is in a
process group of its own, so that Ctrl-C is the trainer's alone and what a worker started ends with it. When its socket
is closed a worker ends at once, whatever it does: however the trainer ended, nothing is left.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError

from baton.errors import BatonError, CorruptError
from baton.learn.scale.workers import Tell, WorkerGone
from baton.learn.scale.workers_lots import (
    Asked,
    EndWorker,
    Lot,
    PlayLot,
    StartWorker,
    Told,
    WorkerBeat,
    WorkerRefused,
    WorkerSetup,
    WorkersFailed,
    decode_asked,
    decode_told,
    digest_of,
    encode,
    told_of,
)
from baton.learn.scale.workers_play import RolloutWorker

_BEAT_SECONDS = 1.0
_END_SECONDS = 5.0
_HEAD = 8 + 32
"""Bytes before a message: its length and its checksum."""
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[3]); from {module} import main; main()"


def send(link: socket.socket, message: Told | Asked) -> None:
    """A whole message, or an OSError."""
    content = encode(message)
    link.sendall(len(content).to_bytes(8, "big") + digest_of(content).encode() + content)


def receive(link: socket.socket) -> bytes | None:
    """The next message; None: the other side has ended, perhaps within one."""
    head = _exactly(link, _HEAD)
    if head is None:
        return None
    content = _exactly(link, int.from_bytes(head[:8], "big"))
    if content is None:
        return None
    if digest_of(content).encode() != head[8:]:
        raise CorruptError("a message between the trainer and a worker is damaged.")
    return content


def _exactly(link: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        try:
            more = link.recv(min(size - len(found), 1 << 20))
        except OSError:
            return None
        if not more:
            return None
        found += more
    return bytes(found)


# -- the trainer's side ---------------------------------------------------------------------------


class ProcessSeats:
    """Starts workers as processes. `module` has the `main` of one."""

    def __init__(self, setup: Callable[[int], WorkerSetup], module: str) -> None:
        self._setup = setup
        self._module = module

    def make(self, number: int, folder: Path, tell: Tell) -> ProcessSeat:
        return ProcessSeat(self._setup(number), self._module, folder, tell)

    def close(self) -> None:
        """Nothing is shared by the processes."""


class ProcessSeat:
    """One of them."""

    def __init__(self, setup: WorkerSetup, module: str, folder: Path, tell: Tell) -> None:
        self._tell = tell
        self._log = folder / f"worker-{setup.number}.log"
        self._link, theirs = socket.socketpair()
        boot = [sys.executable, "-c", _BOOT.format(module=module)]
        given = [str(theirs.fileno()), str(folder), json.dumps(sys.path)]
        try:
            with theirs, self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*boot, *given],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self._link.close()
            raise WorkersFailed(
                f"a rollout worker cannot be started: {error.strerror or error}. With fewer of them: "
                "--set scale.rollout_workers=N"
            ) from error
        self.pid = self._process.pid
        threading.Thread(
            target=self._read, args=(setup,), name=f"baton-worker-{setup.number}", daemon=True
        ).start()

    def give(self, lot: Lot) -> None:
        with suppress(OSError):  # that it has ended is told by who reads
            send(self._link, PlayLot(lot))

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        with suppress(OSError):
            send(self._link, EndWorker())
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def _read(self, setup: WorkerSetup) -> None:
        with self._link:
            with suppress(OSError):
                send(self._link, StartWorker(setup))
            why = ""
            while True:
                try:
                    content = receive(self._link)
                    if content is None:
                        break
                    self._tell(self, decode_told(content))
                except (CorruptError, MsgspecError) as error:
                    why = f"sent what cannot be read ({error})"
                    break
            self.kill()  # with all that it had started
            self._tell(self, WorkerGone(why=why or _ending(self._process.wait(), self._log)))


def _ending(code: int, log: Path) -> str:
    """How a process ended, and the last it said."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        memory = ", which the system sends where memory is short" if -code == signal.SIGKILL else ""
        return f"was killed (signal {name}{memory})"
    said = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    return f"ended with code {code}" + (f" and said: {said[-1]}" if said else "")


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-4000:].decode(errors="replace")
    except OSError:
        return ""


# -- the worker's side ----------------------------------------------------------------------------


def serve(link: socket.socket, folder: Path, make: Callable[[WorkerSetup], RolloutWorker]) -> None:
    """Play what is asked for until the other side ends. Does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: queue.Queue[Asked] = queue.Queue()
    threading.Thread(target=_listen, args=(link, folder, asked), daemon=True).start()
    guard = threading.Lock()
    worker: RolloutWorker | None = None

    def tell(message: Told) -> None:
        with guard:
            try:
                send(link, message)
            except OSError:
                _end()

    def beat() -> None:
        while True:
            tell(WorkerBeat(0 if worker is None else worker.done))
            threading.Event().wait(_BEAT_SECONDS)

    threading.Thread(target=beat, daemon=True).start()
    try:
        while True:
            message = asked.get()
            if isinstance(message, StartWorker):
                worker = make(message.setup)
                tell(worker.ready())
            elif isinstance(message, PlayLot):
                assert worker is not None
                tell(worker.play(message.lot))
    except BatonError as error:
        tell(WorkerRefused(str(error)))
    except Exception as error:
        traceback.print_exc()
        tell(WorkerRefused(told_of(error)))
    threading.Event().wait()  # until the other side has read it, and ends this one


def _listen(link: socket.socket, folder: Path, asked: queue.Queue[Asked]) -> None:
    """What is asked, in order; the end of the other side ends this process."""
    while True:
        try:
            content = receive(link)
        except CorruptError:
            content = None
        if content is None:  # the trainer is no more, and nobody else takes its files away
            shutil.rmtree(folder, ignore_errors=True)
            _end()
            return
        message = decode_asked(content)
        if isinstance(message, EndWorker):
            _end()
        asked.put(message)


def _end() -> None:
    """End this process and all that it started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)
