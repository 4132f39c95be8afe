"""Rollout workers as processes of this machine.

A worker is in a process group of its own, so that Ctrl-C is the trainer's alone and what a worker started ends with it.
What it prints goes to a file; the last of it is told where it dies.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError

from baton.errors import CorruptError
from baton.learn.scale.workers import Tell, WorkerGone
from baton.learn.scale.workers_link import receive, send
from baton.learn.scale.workers_lots import (
    EndWorker,
    Lot,
    PlayLot,
    StartWorker,
    WorkerSetup,
    WorkersFailed,
    decode_told,
)

_END_SECONDS = 5.0
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[3]); from {module} import main; main()"


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
            code = self._process.wait()
            self._tell(self, WorkerGone(why=why or _ending(code, self._log)))


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
