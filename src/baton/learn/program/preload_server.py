"""Runs under the program's own Python, and needs nothing but it: imports modules once, and forks for every run.

    python preload_server.py SOCKET module module ...

Who connects (`preload_client.py`) hands over its standard streams, its folder, its environment and a command line; the
fork becomes that program. When the client goes, however it goes, its run is killed with all of its group. When our own
standard input ends, everything does.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

_LONGEST = 1 << 22


def main() -> None:
    path, modules = sys.argv[1], sys.argv[2:]
    for module in modules:
        importlib.import_module(module)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(1024)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    look = selectors.DefaultSelector()
    look.register(server, selectors.EVENT_READ, "server")
    look.register(0, selectors.EVENT_READ, "owner")
    look.register(woken, selectors.EVENT_READ, "child")
    runs: dict[int, socket.socket] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, _ in look.select():
            if key.data == "owner":
                if not os.read(0, 1):
                    _end_all(runs, path)
            elif key.data == "server":
                client, _ = server.accept()
                pid = _begun(client, (server, look, woken, wakes))
                if pid:
                    runs[pid] = client
                    look.register(client, selectors.EVENT_READ, pid)
            elif key.data == "child":
                os.read(woken, 4096)
                _reap(runs, look)
            elif key.data in runs:  # its client is gone
                _kill(key.data)
                look.unregister(key.fileobj)
                client = runs.pop(key.data)
                client.close()


def _reap(runs: dict[int, socket.socket], look: selectors.BaseSelector) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _kill(pid)  # what it left behind
        client = runs.pop(pid, None)
        if client is not None:
            look.unregister(client)
            with contextlib.suppress(OSError):
                client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            client.close()


def _begun(client: socket.socket, ours: tuple[Any, ...]) -> int:
    """Fork; the id of the process, 0 where the client asked for nothing."""
    fds = array.array("i")
    data, ancillary, _, _ = client.recvmsg(_LONGEST, socket.CMSG_LEN(3 * fds.itemsize))
    for level, kind, raw in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
    while data and not data.endswith(b"\n"):
        more = client.recv(_LONGEST)
        if not more:
            break
        data += more
    if len(fds) != 3 or not data.endswith(b"\n"):
        client.close()
        return 0
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        return pid
    code = 1
    try:
        _become(json.loads(data), fds, client, ours)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            import threading

            threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does: threads that are no daemons end first
            import atexit

            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            code = code or 1
        os._exit(code & 0xFF)


def _become(
    told: dict[str, Any], fds: array.array[int], client: socket.socket, ours: tuple[Any, ...]
) -> None:
    server, look, woken, wakes = ours
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    look.close()
    for each in (server, client):
        each.close()
    os.close(woken)
    os.close(wakes)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    for name in ("random", "numpy.random"):  # a process of its own would draw its own
        if name in sys.modules:
            sys.modules[name].seed()
    sys.argv = told["argv"]
    sys.path[0] = str(Path(told["argv"][0]).absolute().parent)
    runpy.run_path(told["argv"][0], run_name="__main__")


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _end_all(runs: dict[int, socket.socket], path: str) -> None:
    for pid in runs:
        _kill(pid)
    with contextlib.suppress(OSError):
        Path(path).unlink()
    os._exit(0)


if __name__ == "__main__":
    main()
