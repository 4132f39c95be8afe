"""What every campaign shares: a tally that becomes one row, and children that are really killed.

A campaign looks from outside: it compares what was acknowledged with what can be read, what a server was asked with
what a trace says, and a run that was cut off with one that was not. Four things can be wrong with what it finds:

- lost: acknowledged (or paid for) and not there afterwards;
- wrong: there, and not what it was; or a number that differs; or a traceback;
- silent: damage or a fault that nobody was told of;
- unclear: an error that does not say what it is about, or what is the matter.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from msgspec import Struct


class Row(Struct, frozen=True, kw_only=True):
    """What one campaign came to."""

    what: str
    tries: int
    faults: int
    """Tries in which the fault really took hold."""
    lost: int
    wrong: int
    silent: int
    unclear: int
    seconds: float
    notes: tuple[str, ...] = ()
    """One line for each thing that was wrong, with what is needed to do it again."""
    is_checked: bool = True
    """False: nothing is promised of damage, because there is no checksum to see it by."""

    @property
    def is_clean(self) -> bool:
        """Whether everything that is promised held."""
        return not (self.lost or self.wrong or self.unclear or (self.silent and self.is_checked))


class Tally:
    """Counts while a campaign runs."""

    def __init__(self, what: str, *, is_checked: bool = True) -> None:
        self.what = what
        self.is_checked = is_checked
        self.tries = self.faults = 0
        self._counts = dict.fromkeys(("lost", "wrong", "silent", "unclear"), 0)
        self._notes: list[str] = []
        self._began = time.monotonic()

    def lost(self, note: str) -> None:
        self._add("lost", note)

    def wrong(self, note: str) -> None:
        self._add("wrong", note)

    def silent(self, note: str) -> None:
        self._add("silent", note)

    def unclear(self, note: str) -> None:
        self._add("unclear", note)

    def row(self) -> Row:
        seconds = time.monotonic() - self._began
        return Row(
            what=self.what,
            tries=self.tries,
            faults=self.faults,
            seconds=seconds,
            notes=tuple(self._notes),
            is_checked=self.is_checked,
            **self._counts,
        )

    def _add(self, kind: str, note: str) -> None:
        self._counts[kind] += 1
        self._notes.append(f"{self.what}: {kind}: {note}")


class Died(Struct, frozen=True):
    """How a child ended: what it acknowledged, whether it was killed, its exit code, and what it said."""

    acknowledged: bytes
    killed: bool
    code: int
    said: str
    seconds: float
    megabytes: float
    """What it took at most beyond what it began with."""

    def lines(self) -> list[str]:
        """Whole lines of acknowledgements; one that was cut off acknowledges nothing."""
        whole = self.acknowledged[: self.acknowledged.rfind(b"\n") + 1]
        return whole.decode().splitlines()


def run_child(
    work: Callable[[int], int | None],
    said: Path,
    kill_after: float | None = None,
    most_seconds: float = 120.0,
) -> Died:
    """Run `work` in a fork of this warm process, with a pipe for acknowledgements; kill it after a while.

    What it prints goes to the file `said`. A child that is not done after `most_seconds` hangs, and is an error.
    """
    sys.stdout.flush()
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        be_the_child(work, reader, writer, said)
    os.close(writer)
    if kill_after is not None:
        _wait(child, kill_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        if kill_after is None:
            acknowledged = _read_until(pipe.fileno(), child, most_seconds)
        else:
            acknowledged = pipe.read()
    return died_of(child, acknowledged, said, began)


def died_of(child: int, acknowledged: bytes, said: Path, began: float) -> Died:
    """Wait for a child, and say how it ended."""
    _, status, used = os.wait4(child, 0)
    killed = os.WIFSIGNALED(status)
    return Died(
        acknowledged=acknowledged,
        killed=killed,
        code=-os.WTERMSIG(status) if killed else os.WEXITSTATUS(status),
        said=said.read_text(errors="replace") if said.exists() else "",
        seconds=time.monotonic() - began,
        megabytes=(used.ru_maxrss - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024,
    )


def be_the_child(work: Callable[[int], int | None], reader: int, writer: int, said: Path) -> None:
    """What a fork does instead of returning: it works, with what it prints in a file, and ends."""
    status = 1
    try:
        os.close(reader)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        status = work(writer) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, seconds: float) -> None:
    """Sleep, but not past the child's own end (it stays there to be killed: nobody has waited for it)."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(min(0.002, seconds))


def _read_until(pipe: int, child: int, most_seconds: float) -> bytes:
    until = time.monotonic() + most_seconds
    got = b""
    while True:
        left = until - time.monotonic()
        if left <= 0:
            os.kill(child, signal.SIGKILL)
            return got
        ready, _, _ = select.select([pipe], [], [], left)
        if ready:
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return got
            got += piece


def warm(*modules: str) -> None:
    """Import before the forks: a kill falls into a run and not into an import, and each child begins at once."""
    for name in modules:
        import_module(name)


def is_traceback(said: str) -> bool:
    return "Traceback (most recent call last)" in said
