"""A sandboxed Python tool: code nobody trusts, in a process that can do little.

Every run has a process of its own with an empty directory, a bare environment and no inherited files; it may start no
other process, open no socket, and read nothing but Python itself. Time, memory, files and output are bounded, and
nothing is left behind. How well that is enforced is a level (`baton.team.tools.sandbox_levels`): the strongest that
the machine gives is taken, and what is weaker than was asked for is refused. `SandboxResult.level` says what held.
"""

from __future__ import annotations

import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from baton.errors import BatonError
from baton.team.tools import bubblewrap
from baton.team.tools.sandbox_folder import holds_too_much, remove
from baton.team.tools.sandbox_levels import (
    LAYERS,
    NEEDED,
    UNWRAPPED,
    WRAPPED,
    Level,
    Protection,
    SandboxLimits,
    SandboxRefused,
    level_of,
    refusal,
)
from baton.team.tools.seccomp import filter_code
from baton.team.tools.tool import Confined, Tool, in_thread, tool

Stopped = Literal["time", "cpu", "output", "files", "signal", "cancelled", "start", "refused"]
_CHILD = Path(__file__).with_name("sandbox_child.py")
_LOOK_SECONDS = 0.05  # between looks at the directory and at whether the run was cancelled
_SEATS = threading.BoundedSemaphore(max(4, 2 * (os.cpu_count() or 1)))
"""Processes at a time. A run waits for its seat before its own time begins: of a thousand agents that compute at
once, most would else be stopped for the time the others took."""
_KERNEL_LIMITS = ("cpu_seconds", "memory_bytes", "file_bytes", "disk_bytes", "num_files", "num_threads")
_END_SECONDS = 5
"""That everything inside bubblewrap may take to be gone once it is killed."""
_SEAT_SECONDS = 600
"""That a tool's call may wait for one."""


class SandboxError(BatonError):
    """Sandboxed code failed or was stopped. The message is its output and the reason."""

    def __init__(self, message: str, sandbox: Level | None = None) -> None:
        super().__init__(message)
        self.sandbox = sandbox
        """The level at which it ran; None: it did not run."""


class KeptFolder(Struct, frozen=True):
    """A folder that code runs in and that stays when it has ended."""

    folder: Path
    over: Callable[[], bool]
    """Whether more is kept than may be; looked at every 50 ms."""


class SandboxResult(Struct, frozen=True, kw_only=True):
    """What came of one run."""

    output: str
    """Standard output and error together, as they came."""
    exit_code: int | None
    """None: it did not get to exit."""
    stopped: Stopped | None
    layers: tuple[str, ...]
    """The layers in force; "audit" stands for the weak one, used where seccomp is absent."""
    level: Level | None
    """What they make together; None: it did not start."""
    duration_s: float


def python_tool(limits: SandboxLimits | None = None) -> Tool:
    """The `python` tool. Its code has no effect outside, so a run may always be repeated."""
    limits = limits or SandboxLimits()

    async def python(code: str) -> Confined:
        """Run Python code and return what it prints; the value of a last expression is printed too.

        Standard library only, no network, no other processes, an empty directory that is deleted afterwards.
        """
        cancelled = threading.Event()
        try:
            result: SandboxResult = await in_thread(lambda: run_python(code, limits, cancelled))
        finally:
            cancelled.set()
        if result.exit_code == 0 and result.level is not None:
            return Confined(text=result.output, sandbox=result.level)
        raise SandboxError(explained(result, limits), result.level)

    made = tool(
        pure=True,
        idempotent=True,
        timeout_seconds=limits.wall_seconds + _SEAT_SECONDS,
        max_output_bytes=limits.output_bytes + 1_000,
        check=lambda: require(limits),
    )
    return made(python)


def require(limits: SandboxLimits) -> None:
    """Raise `SandboxRefused` where this machine protects less than is asked for."""
    found = protection(limits.layers)
    if not found.meets(limits.least):
        raise SandboxRefused(refusal(found, limits.least))


@cache
def protection(layers: tuple[str, ...] = LAYERS) -> Protection:
    """What holds on this machine, found by starting an empty program."""
    tried = run_python("", SandboxLimits(least="audit", layers=layers))
    missing = {
        "bubblewrap": why_no_bubblewrap(),
        "landlock": None
        if "landlock" in tried.layers
        else "the kernel does not give it (Linux 5.13 or later does)",
        "seccomp": None if "seccomp" in tried.layers else "for Linux on x86-64 and ARM64",
        "start": tried.output.strip() if tried.level is None else None,
    }
    missing |= {layer: "not tried" for layer in LAYERS if layer in missing and layer not in layers}
    return Protection(
        level=tried.level, layers=tried.layers, missing={name: why for name, why in missing.items() if why}
    )


@cache
def why_no_bubblewrap() -> str | None:
    """Why bubblewrap is not used here; None: it works, as an empty program that was started in it showed."""
    if sys.platform != "linux":
        return "for Linux"
    if bubblewrap.find_bubblewrap() is None:
        return "there is no bwrap command"
    tried = _seated("", SandboxLimits(least="bubblewrap"), threading.Event(), wrap=True)
    if tried.level == "bubblewrap" and tried.exit_code == 0:
        return None
    held = f"only {', '.join(tried.layers)} held in it" if tried.layers else "it does not start"
    return " ".join((tried.output or held).split())[:300].rstrip(".")


def run_python(
    code: str,
    limits: SandboxLimits | None = None,
    cancelled: threading.Event | None = None,
    *,
    kept: KeptFolder | None = None,
) -> SandboxResult:
    """Run code to its end, or to a limit's. Never raises; setting `cancelled` stops it within 50 ms.

    `kept`: a folder to run in that stays; else one of its own, which is deleted.
    """
    limits, cancelled = limits or SandboxLimits(), cancelled or threading.Event()
    while not _SEATS.acquire(timeout=_LOOK_SECONDS):
        if cancelled.is_set():
            return _not_run("cancelled", "")
    try:
        wrap = "bubblewrap" in limits.layers and why_no_bubblewrap() is None
        result = _seated(code, limits, cancelled, wrap=wrap, kept=kept)
    finally:
        _SEATS.release()
    if result.stopped == "refused":
        return structs.replace(result, output=refusal(protection(limits.layers), limits.least))
    return result


def _seated(
    code: str,
    limits: SandboxLimits,
    cancelled: threading.Event,
    *,
    wrap: bool,
    kept: KeptFolder | None = None,
) -> SandboxResult:
    began = time.monotonic()
    directory: Path | None = None
    try:
        if not wrap and kept is None:  # inside bubblewrap it has one in memory
            directory = Path(tempfile.mkdtemp(prefix="baton-sandbox-"))
        run = _Run(code, directory, limits, wrap=wrap, kept=kept)
    except OSError as error:
        if directory is None:
            return _not_run("start", f"no working directory ({error})" if not wrap else str(error))
        remove(directory)
        return _not_run("start", str(error))
    try:
        return run.watch(began, cancelled)
    finally:
        run.end()
        if directory is not None:  # one of its own; never one that was given
            remove(directory)


class _Run:
    """One process, its pipes, and what it has said so far."""

    def __init__(
        self, code: str, directory: Path | None, limits: SandboxLimits, *, wrap: bool, kept: KeptFolder | None
    ) -> None:
        self._limits = limits
        self._wrapped, self._kept = wrap, kept
        self._directory = directory if kept is None else kept.folder
        self._output, self._status, self._info = bytearray(), bytearray(), bytearray()
        self._status_fd, status = os.pipe()
        self._info_fd, info = os.pipe()
        home = bubblewrap.FOLDER if wrap else str(self._directory)
        try:
            with tempfile.TemporaryFile() as source:
                source.write(code.encode(errors="replace"))
                source.seek(0)
                self._process = subprocess.Popen(
                    _command(limits, status_fd=status, info_fd=info, wrap=wrap, kept=kept),
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd="/" if wrap else self._directory,
                    env={"PATH": "/usr/bin:/bin", "HOME": home, "PYTHONHASHSEED": "0"},
                    pass_fds=(status, info) if wrap else (status,),
                    start_new_session=True,
                )
        except OSError:
            os.close(self._status_fd)
            os.close(self._info_fd)
            raise
        finally:
            os.close(status)
            os.close(info)

    def watch(self, began: float, cancelled: threading.Event) -> SandboxResult:
        """Collect the output until the process ends or has to be ended."""
        assert self._process.stdout is not None
        stopped: Stopped | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout.fileno(), selectors.EVENT_READ, self._output)
            selector.register(self._status_fd, selectors.EVENT_READ, self._status)
            selector.register(self._info_fd, selectors.EVENT_READ, self._info)
            while stopped is None and self._process.stdout.fileno() in selector.get_map():
                for key, _ in selector.select(_LOOK_SECONDS):
                    data = os.read(key.fd, 65_536)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fd)
                stopped = self._over(began, cancelled)
                if stopped is None and len(self._output) > self._limits.output_bytes:
                    stopped = "output"
        while stopped is None:  # it closed its output; it may still be running
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
                break
            stopped = self._over(began, cancelled)
        self.end()
        return self._result(stopped, time.monotonic() - began)

    def _over(self, began: float, cancelled: threading.Event) -> Stopped | None:
        """Which limit it has run into by now."""
        if cancelled.is_set():
            return "cancelled"
        if time.monotonic() - began > self._limits.wall_seconds:
            return "time"
        return "files" if self._holds_too_much() else None

    def _holds_too_much(self) -> bool:
        """Whether it has written too much, where the kernel does not see to that."""
        most = {"max_bytes": self._limits.disk_bytes, "max_files": self._limits.num_files}
        if self._kept is not None and self._kept.over():
            return True
        if self._directory is not None:
            pid = self._inside() if self._wrapped else None
            return holds_too_much(self._directory, pid or self._process.pid, **most)
        inside = self._inside()
        if inside is None or not self._status or b"quota" in self._status:
            return False
        folder = Path(f"/proc/{inside}/root{bubblewrap.FOLDER}")
        if not holds_too_much(folder, inside, **most):
            return False
        time.sleep(_LOOK_SECONDS)  # of a process that is just ending nothing can be listed either
        return self._process.poll() is None and holds_too_much(folder, inside, **most)

    def _inside(self) -> int | None:
        """The number of the first process inside bubblewrap, as it told."""
        try:
            return int(json.loads(self._info)["child-pid"])
        except (ValueError, KeyError):
            return None

    def _result(self, stopped: Stopped | None, duration_s: float) -> SandboxResult:
        code = self._process.returncode
        if self._wrapped and code - 128 in signal.valid_signals():
            code = 128 - code  # bubblewrap tells of a signal as a shell does
        layers = tuple(self._status.decode().split(",")) if self._status else ()
        ended = stopped
        if ended is None and not layers:
            ended = "start"
        elif layers and not set(NEEDED[self._limits.least]) <= set(layers):
            ended = "refused"
        elif ended is None and code < 0:
            over = code == -signal.SIGKILL and duration_s >= self._limits.cpu_seconds
            ended = "cpu" if over or code == -signal.SIGXCPU else "signal"
        kept = bytes(self._output[: self._limits.output_bytes])
        return SandboxResult(
            output=kept.decode(errors="replace"),
            exit_code=code if ended is None else None,
            stopped=ended,
            layers=layers,
            level=level_of(layers) if layers else None,
            duration_s=duration_s,
        )

    def end(self) -> None:
        """Kill the process and all that came of it, and take its exit status. Safe to repeat."""
        if self._process.returncode is None:
            if not self._kill_inside():
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # its own session, so the group is its own
            self._process.wait()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.stdout.close()
            os.close(self._status_fd)
            os.close(self._info_fd)

    def _kill_inside(self) -> bool:
        """Kill the first process inside bubblewrap, and with it all others there: bwrap ends when all are gone.

        Killed itself, bwrap would be gone a moment before them.
        """
        pid = self._inside()
        if pid is None:
            return False
        try:
            opened = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            # Still the child of bwrap: then it is the one that is meant, whatever became of the number meanwhile.
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) != self._process.pid:
                return False
            signal.pidfd_send_signal(opened, signal.SIGKILL)
            self._process.wait(_END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return False
        finally:
            os.close(opened)
        return True


def _command(
    limits: SandboxLimits, *, status_fd: int, info_fd: int, wrap: bool, kept: KeptFolder | None
) -> list[str]:
    """The program that confines itself and runs the code on its standard input."""
    left_out = (
        (UNWRAPPED if wrap else WRAPPED) if kept is None else ("quota", *(UNWRAPPED if wrap else WRAPPED))
    )
    settings = {
        "status_fd": status_fd,
        "parent": os.getpid(),
        "folder": bubblewrap.FOLDER,
        "readable": bubblewrap.readable(),
        "layers": [name for name in limits.layers if name not in left_out],
        "needed": NEEDED[limits.least],
        "filter": filter_code(platform.machine()).hex(),
        "limits": {name: getattr(limits, name) for name in _KERNEL_LIMITS},
    }
    # -P and no site: nothing of the user's is importable; a fixed hash seed keeps runs alike.
    python = [os.path.realpath(sys.executable), "-S", "-s", "-P", "-B", "-X", "utf8"]
    if not wrap:
        return [*python, str(_CHILD), json.dumps(settings)]
    program = [*python, bubblewrap.CHILD, json.dumps(settings)]
    folder = None if kept is None else kept.folder
    return bubblewrap.wrapped(
        program, child=_CHILD, num_bytes=limits.disk_bytes, info_fd=info_fd, folder=folder
    )


def _not_run(stopped: Literal["start", "cancelled"], reason: str) -> SandboxResult:
    return SandboxResult(
        output=reason, exit_code=None, stopped=stopped, layers=(), level=None, duration_s=0.0
    )


def explained(result: SandboxResult, limits: SandboxLimits) -> str:
    """What came of a run that failed, as an agent reads it."""
    reasons = {
        "time": f"stopped after {limits.wall_seconds:g} seconds",
        "cpu": f"stopped: it used more than {limits.cpu_seconds} seconds of processor time",
        "output": f"stopped: it printed more than {limits.output_bytes} bytes",
        "files": f"stopped: it wrote more than {limits.disk_bytes} bytes or {limits.num_files} files",
        "signal": "it crashed",
        "cancelled": "cancelled",
        "start": "the sandbox could not be started",
        "refused": "it was not run",
        None: f"exit code {result.exit_code}",
    }
    return f"{result.output.rstrip()}\n[{reasons[result.stopped]}]".lstrip()
