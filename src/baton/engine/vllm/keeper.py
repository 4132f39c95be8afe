"""Keeps a server alive as long as somebody holds the other end of its input, and not a moment longer.

Run as a program of its own (`python keeper.py COMMAND...`): it starts the command in a group of processes and waits.
When its input ends, because whoever started it is done or was killed in any way, the whole group is told to end, then
killed. Where it is killed itself, the system tells the command (on Linux). It imports nothing of Baton's.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

_GRACE_SECONDS = 15.0
_GLANCE_SECONDS = 0.2


def _dies_with_parent() -> None:
    """In the command before it begins: end when the keeper is gone."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _end(group: int, signal_number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal_number)


def keep(command: list[str]) -> int:
    """Run a command until it ends or the input does; gives its exit status."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_dies_with_parent,  # this process has one thread
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while child.poll() is None:
        ready, _, _ = select.select([sys.stdin], [], [], _GLANCE_SECONDS)
        if ready and not os.read(sys.stdin.fileno(), 1024):
            _end(child.pid, signal.SIGTERM)
            until = time.monotonic() + _GRACE_SECONDS
            while child.poll() is None and time.monotonic() < until:
                time.sleep(_GLANCE_SECONDS)
            break
    _end(child.pid, signal.SIGKILL)  # whoever of its group is left
    return child.wait()


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
