"""A sandboxed Python tool: code nobody trusts, in a process that can do little.

Every run has a process of its own with an empty temporary directory, a bare environment and no
inherited files; it may start no other process, open no socket, and read nothing but Python itself.
Time, memory, files and output are bounded, and nothing is left behind. What holds on which system,
and what is not covered, is in docs/sandbox.md; `SandboxResult.layers` says what held in this run.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from baton.errors import BatonError
from baton.team.tools.tool import Tool, in_thread, tool

LAYERS = ("limits", "namespaces", "capabilities", "landlock", "seccomp")
_CHILD = Path(__file__).with_name("sandbox_child.py")
_LOOK_SECONDS = 0.05  # between looks at the directory and at whether the run was cancelled
_SEATS = threading.BoundedSemaphore(max(4, 2 * (os.cpu_count() or 1)))
"""Processes at a time. A run waits for its seat before its own time begins: of a thousand agents that compute at
once, most would else be stopped for the time the others took."""
_SEAT_SECONDS = 600
"""That a tool's call may wait for one."""


class SandboxError(BatonError):
    """Sandboxed code failed or was stopped. The message is its output and the reason."""


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """What one run may take."""

    wall_seconds: float = 10.0
    cpu_seconds: int = 5
    memory_bytes: int = 512 * 2**20
    """Address space; Python itself needs some 40 MiB."""
    file_bytes: int = 16 * 2**20
    """The most that any one file may hold."""
    disk_bytes: int = 64 * 2**20
    """The most that all files may hold together. Looked at every 50 ms, so a fast writer gets past it by a little."""
    num_files: int = 1_000
    """Files and directories together, looked at likewise."""
    num_threads: int = 32
    """Where the kernel counts them; running as root it does not, and memory is the bound."""
    output_bytes: int = 65_536
    layers: tuple[str, ...] = LAYERS
    """The layers of confinement to try."""


class SandboxResult(Struct, frozen=True, kw_only=True):
    """What came of one run."""

    output: str
    """Standard output and error together, as they came."""
    exit_code: int | None
    """None: it did not get to exit."""
    stopped: Literal["time", "cpu", "output", "files", "signal", "cancelled", "start"] | None
    layers: tuple[str, ...]
    """The layers in force; "audit" stands for the weak one, used where seccomp is absent."""
    duration_s: float


def python_tool(limits: SandboxLimits | None = None) -> Tool:
    """The `python` tool. Its code has no effect outside, so a run may always be repeated."""
    limits = limits or SandboxLimits()

    async def python(code: str) -> str:
        """Run Python code and return what it prints; the value of a last expression is printed too.

        Standard library only, no network, no other processes, an empty directory that is deleted afterwards.
        """
        cancelled = threading.Event()
        try:
            result: SandboxResult = await in_thread(lambda: run_python(code, limits, cancelled))
        finally:
            cancelled.set()
        if result.exit_code == 0:
            return result.output
        raise SandboxError(_explained(result, limits))

    made = tool(
        pure=True,
        idempotent=True,
        timeout_seconds=limits.wall_seconds + _SEAT_SECONDS,
        max_output_bytes=limits.output_bytes + 1_000,
    )
    return made(python)


def run_python(
    code: str, limits: SandboxLimits | None = None, cancelled: threading.Event | None = None
) -> SandboxResult:
    """Run code to its end, or to a limit's. Never raises; setting `cancelled` stops it within 50 ms."""
    limits, cancelled = limits or SandboxLimits(), cancelled or threading.Event()
    while not _SEATS.acquire(timeout=_LOOK_SECONDS):
        if cancelled.is_set():
            return _not_run("cancelled", "")
    try:
        return _seated(code, limits, cancelled)
    finally:
        _SEATS.release()


def _seated(code: str, limits: SandboxLimits, cancelled: threading.Event) -> SandboxResult:
    began = time.monotonic()
    try:
        directory = Path(tempfile.mkdtemp(prefix="baton-sandbox-"))
    except OSError as error:
        return _not_run("start", f"no working directory ({error})")
    try:
        run = _Run(code, directory, limits)
    except OSError as error:
        _remove(directory)
        return _not_run("start", str(error))
    try:
        return run.watch(began, cancelled)
    finally:
        run.end()
        _remove(directory)


class _Run:
    """One process, its pipes, and what it has said so far."""

    def __init__(self, code: str, directory: Path, limits: SandboxLimits) -> None:
        self._limits = limits
        self._directory = directory
        self._output = bytearray()
        self._status = bytearray()
        self._status_fd, child_end = os.pipe()
        settings = {
            "status_fd": child_end,
            "layers": limits.layers,
            "limits": {
                name: getattr(limits, name)
                for name in ("cpu_seconds", "memory_bytes", "file_bytes", "num_threads")
            },
        }
        # -P and no site: nothing of the user's is importable; a fixed hash seed keeps runs alike.
        flags = ("-S", "-s", "-P", "-B", "-X", "utf8")
        try:
            with tempfile.TemporaryFile() as source:
                source.write(code.encode(errors="replace"))
                source.seek(0)
                self._process = subprocess.Popen(
                    [os.path.realpath(sys.executable), *flags, str(_CHILD), json.dumps(settings)],
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "PYTHONHASHSEED": "0"},
                    pass_fds=(child_end,),
                    start_new_session=True,
                )
        except OSError:
            os.close(self._status_fd)
            raise
        finally:
            os.close(child_end)

    def watch(self, began: float, cancelled: threading.Event) -> SandboxResult:
        """Collect the output until the process ends or has to be ended."""
        assert self._process.stdout is not None
        stopped: Literal["time", "output", "files", "cancelled"] | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout.fileno(), selectors.EVENT_READ, self._output)
            selector.register(self._status_fd, selectors.EVENT_READ, self._status)
            while stopped is None and self._process.stdout.fileno() in selector.get_map():
                for key, _ in selector.select(_LOOK_SECONDS):
                    data = os.read(key.fd, 65_536)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fd)
                if cancelled.is_set():
                    stopped = "cancelled"
                elif time.monotonic() - began > self._limits.wall_seconds:
                    stopped = "time"
                elif len(self._output) > self._limits.output_bytes:
                    stopped = "output"
                elif _too_much(self._directory, self._limits):
                    stopped = "files"
        if stopped is None:  # it closed its output; it may still be running
            stopped = self._await_exit(began, cancelled)
        self.end()
        return self._result(stopped, time.monotonic() - began)

    def _await_exit(self, began: float, cancelled: threading.Event) -> Literal["time", "cancelled"] | None:
        while True:
            try:
                self._process.wait(_LOOK_SECONDS)
                return None
            except subprocess.TimeoutExpired:
                if cancelled.is_set():
                    return "cancelled"
                if time.monotonic() - began > self._limits.wall_seconds:
                    return "time"

    def _result(
        self, stopped: Literal["time", "output", "files", "cancelled"] | None, duration_s: float
    ) -> SandboxResult:
        code = self._process.returncode
        ended: Literal["time", "cpu", "output", "files", "signal", "cancelled", "start"] | None = stopped
        if ended is None and not self._status:
            ended = "start"
        elif ended is None and code < 0:
            over = code == -signal.SIGKILL and duration_s >= self._limits.cpu_seconds
            ended = "cpu" if over or code == -signal.SIGXCPU else "signal"
        kept = bytes(self._output[: self._limits.output_bytes])
        return SandboxResult(
            output=kept.decode(errors="replace"),
            exit_code=code if ended is None else None,
            stopped=ended,
            layers=tuple(self._status.decode().split(",")) if self._status else (),
            duration_s=duration_s,
        )

    def end(self) -> None:
        """Kill the process and all of its group, and take its exit status. Safe to repeat."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its own session, so the group is its own
            self._process.wait()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.stdout.close()
            os.close(self._status_fd)


def _not_run(stopped: Literal["start", "cancelled"], reason: str) -> SandboxResult:
    return SandboxResult(output=reason, exit_code=None, stopped=stopped, layers=(), duration_s=0.0)


def _explained(result: SandboxResult, limits: SandboxLimits) -> str:
    reasons = {
        "time": f"stopped after {limits.wall_seconds:g} seconds",
        "cpu": f"stopped: it used more than {limits.cpu_seconds} seconds of processor time",
        "output": f"stopped: it printed more than {limits.output_bytes} bytes",
        "files": f"stopped: it wrote more than {limits.disk_bytes} bytes or {limits.num_files} files",
        "signal": "it crashed",
        "cancelled": "cancelled",
        "start": "the sandbox could not be started",
        None: f"exit code {result.exit_code}",
    }
    return f"{result.output.rstrip()}\n[{reasons[result.stopped]}]".lstrip()


def _too_much(directory: Path, limits: SandboxLimits) -> bool:
    """Whether the files are too many, too big, or put where they cannot be counted."""
    num_files = num_bytes = 0
    pending = [os.fspath(directory)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    num_files += 1
                    if num_files > limits.num_files:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # deleted meanwhile
        except OSError:
            return True  # a path too long or a directory that cannot be listed hides what is in it
    return num_bytes > limits.disk_bytes


def _remove(directory: Path) -> None:
    """Delete the directory, however deep and however its permissions: subdirectories move up first."""
    count = 0
    with suppress(OSError):  # what cannot be deleted stays in the temporary directory
        while entries := list(directory.iterdir()):
            for entry in entries:
                if entry.is_symlink() or not entry.is_dir():
                    entry.unlink()
                    continue
                entry.chmod(0o700)
                for inner in list(entry.iterdir()):
                    count += 1
                    inner.rename(directory / f".{count}-{os.urandom(8).hex()}")
                entry.rmdir()
        directory.rmdir()
