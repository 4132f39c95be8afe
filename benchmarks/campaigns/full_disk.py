"""A disk that is full for one process, from its n-th write on: the kernel asks us about every write, and we refuse.

This is seccomp's user notification: a filter in the child hands writes, new files and new folders over to this process,
which lets them go on or answers ENOSPC. So the disk can be full at any single write of any library, SQLite's and
Arrow's too, with no need of a disk. Sources: seccomp_unotify(2), seccomp(2). For Linux on x86-64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

from campaigns.campaign import Died, be_the_child, died_of

_WRITE, _PWRITE, _WRITEV, _OPENAT, _MKDIR, _FALLOCATE, _PWRITEV = 1, 18, 20, 257, 83, 285, 296
_ASKED = (_WRITE, _PWRITE, _WRITEV, _OPENAT, _MKDIR, _FALLOCATE, _PWRITEV)
_SECCOMP, _SET_FILTER, _NEW_LISTENER = 317, 1, 8
_NO_NEW_PRIVILEGES = 38
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_LONGEST_PATH = 4096


def can_fill() -> bool:
    """Whether this machine has what it takes."""
    return platform.machine() == "x86_64" and hasattr(os, "fork") and sys.platform == "linux"


def run_on_full_disk(
    work: Callable[[int], int | None], place: Path, said: Path, *, full_from: int, full_for: int = 10**9
) -> tuple[Died, int]:
    """Run `work` in a fork; under `place`, writes from the `full_from`-th on fail, `full_for` of them.

    Gives how the child ended and how many writes it asked for.
    """
    sys.stdout.flush()
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        ours.close()
        be_the_child(lambda pipe: _filtered(work, pipe, theirs), reader, writer, said)
    os.close(writer)
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    acknowledged, count = _attend(listener, reader, child, place, full_from, full_for)
    os.close(listener)
    os.close(reader)
    return died_of(child, acknowledged, said, began), count


def _filtered(work: Callable[[int], int | None], pipe: int, theirs: socket.socket) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    program = [(0x20, 0, 0, 0)]  # the number of the call
    program += [(0x15, len(_ASKED) - k, 0, number) for k, number in enumerate(_ASKED)]
    program += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    told = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    listener = libc.syscall(_SECCOMP, _SET_FILTER, _NEW_LISTENER, told)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(theirs, [b"."], [listener])
    os.close(listener)
    theirs.close()
    return work(pipe)


def _attend(
    listener: int, reader: int, child: int, place: Path, full_from: int, full_for: int
) -> tuple[bytes, int]:
    """Answer the kernel until the child closes its pipe."""
    acknowledged, count, until = b"", 0, time.monotonic() + 120
    while True:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        ready, _, _ = select.select([listener, reader], [], [], 1.0)
        if reader in ready:
            piece = os.read(reader, 1 << 16)
            if not piece:
                return acknowledged, count
            acknowledged += piece
        if listener in ready:
            asked = bytearray(80)
            try:
                ioctl(listener, _RECEIVE, asked)
                number, pid, _, call = struct.unpack_from("QIIi", asked)
                args = struct.unpack_from("6Q", asked, 32)
                refused = False
                if _is_ours(pid, call, args, place):
                    refused = full_from <= count < full_from + full_for
                    count += 1
                answer = (0, -errno.ENOSPC, 0) if refused else (0, 0, _CONTINUE)
                ioctl(listener, _SEND, bytearray(struct.pack("QqiI", number, *answer)))
            except OSError:
                continue  # it died meanwhile


def _is_ours(pid: int, call: int, args: tuple[int, ...], place: Path) -> bool:
    """Whether something is to be written under the place."""
    if call in (_WRITE, _PWRITE, _WRITEV, _FALLOCATE, _PWRITEV):
        try:
            target = str(Path(f"/proc/{pid}/fd/{args[0] & 0xFFFFFFFF}").readlink())
        except OSError:
            return False
    elif call == _OPENAT and not args[2] & os.O_CREAT:
        return False
    else:
        target = _path_of(pid, args[1] if call == _OPENAT else args[0])
        if Path(target).exists():  # opened and not made, or refused in any case
            return False
    return target.startswith(f"{place}/")


def _path_of(pid: int, address: int) -> str:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        text = memory.read(_LONGEST_PATH).partition(b"\0")[0].decode("utf-8", "replace")
    return text if text.startswith("/") else str(Path(f"/proc/{pid}/cwd").readlink() / text)
