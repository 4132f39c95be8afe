"""The socket between a trainer and a worker's process, and the worker's side of it. Nothing here needs torch.

A message is its length, its checksum and its content; one that was cut off with its sender is none. When the socket is
closed a worker ends at once, whatever it does: however the trainer ended, nothing is left.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from baton.errors import BatonError, CorruptError
from baton.learn.scale.workers_lots import (
    Asked,
    EndWorker,
    Lot,
    PlayedLot,
    PlayLot,
    StartWorker,
    Told,
    WorkerBeat,
    WorkerReady,
    WorkerRefused,
    WorkerSetup,
    decode_asked,
    digest_of,
    encode,
    told_of,
)

_BEAT_SECONDS = 1.0
_HEAD = 8 + 32
"""Bytes before a message: its length and its checksum."""


class PlaysLots(Protocol):
    """What serves a socket: a `RolloutWorker`."""

    done: int

    def ready(self) -> WorkerReady: ...

    def play(self, lot: Lot) -> PlayedLot: ...


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


def serve(link: socket.socket, folder: Path, make: Callable[[WorkerSetup], PlaysLots]) -> None:
    """Play what is asked for until the other side ends. Does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: queue.Queue[Asked] = queue.Queue()
    threading.Thread(target=_listen, args=(link, folder, asked), daemon=True).start()
    guard = threading.Lock()
    worker: PlaysLots | None = None

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
