"""asyncio.run that Ctrl-C always ends.

A signal that comes as the loop goes to sleep, or to another thread, is seen only when something else wakes the loop:
with a model that hangs, never. Written to a socket that the loop watches, it is seen at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["run_waking"]

T = TypeVar("T")


def run_waking(work: Coroutine[Any, Any, T]) -> T:
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
