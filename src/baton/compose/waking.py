"""How work ends when it is told to: Ctrl-C always ends it, SIGTERM ends it well, a closed pipe ends it quietly.

A signal that comes as the loop goes to sleep, or to another thread, is seen only when something else wakes the loop:
with a model that hangs, never. Written to a socket that the loop watches, it is seen at once (`run_waking`).

A cluster's scheduler or `timeout` sends SIGTERM, and SIGKILL soon after. A step of training that is nearly done is let
to its end and kept as a checkpoint; a long one is broken off as by Ctrl-C (`Ending`). A second signal ends the process
at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self, TextIO, TypeVar

T = TypeVar("T")


def run_waking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; a signal wakes the loop at once."""

    async def watched() -> T:
        with _woken(asyncio.get_running_loop()):
            return await work

    return asyncio.run(watched())


@contextmanager
def _woken(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    heard, told = socket.socketpair()
    with heard, told:
        heard.setblocking(False)
        told.setblocking(False)
        try:
            before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        except ValueError:  # not the main thread, which alone hears signals
            yield
            return
        loop.add_reader(heard, heard.recv, 4096)
        try:
            yield
        finally:
            loop.remove_reader(heard)
            signal.set_wakeup_fd(before)


_QUICK_SECONDS = 5.0
"""Steps that take less are ended properly. Schedulers leave ten seconds or more."""


class Terminated(KeyboardInterrupt):  # like its base: no error of anyone's
    """SIGTERM came."""


class Unread(KeyboardInterrupt):
    """Whoever read what the run says has gone."""


def why_stopped(stop: KeyboardInterrupt) -> str:
    """Why a run stopped, as run.json says it."""
    if isinstance(stop, Unread):
        return "nobody read its output any more: the pipe was closed"
    return "terminated" if isinstance(stop, Terminated) else "interrupted"


def exit_code(stop: KeyboardInterrupt) -> int:
    """The exit code of a stopped command: 128 and the signal's number, as shells have it."""
    if isinstance(stop, Unread):
        return 141
    return 143 if isinstance(stop, Terminated) else 130


def silence(stream: TextIO) -> None:
    """What is written there from now on goes nowhere, so that the rest of a command is not lost with its reader."""
    with suppress(OSError, ValueError):  # no real file, or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Ending:
    """Hears SIGTERM while a run goes on, as a context manager around it."""

    def __init__(self) -> None:
        self.asked = False
        """Whether to stop after this step."""
        self.step_seconds: float | None = None
        """How long the last step took; None: this is not a step, or nobody knows."""
        self._before: signal.Handlers | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._told)  # type: ignore[assignment]  # a handler of Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _told(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.step_seconds is not None and self.step_seconds < _QUICK_SECONDS:
            self.asked = True
        else:
            raise Terminated
