"""Steering a run that goes on in another process: acts in a file beside its store, and how it stands in another.

`run.db-acts` holds one act a line. Who steers only ever adds to it; the run reads what is new, and its trace says what
came of each act. So nothing is lost, whichever of the two dies: a run that is resumed does what is there and not in its
trace yet. A line that was cut off is no act.

`run.db-now` is there while runs of the store go on: which process they are in, and how those stand that people steer.
It is a picture of the moment and nothing hangs on it.

Invariant: acts are taken from a file only that is its owner's alone, and the owner is whom the run belongs to. Who may
write to the folder and is somebody else can put a file there, and steer nothing by it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.errors import UsageError, nearest
from baton.team.people import ACT, Act, Doing, RunStanding
from baton.trace.formats.recognition import stores_in
from baton.trace.formats.sqlite.store_read import TraceSummary, list_traces, read_store
from baton.trace.notes import who
from baton.trace.records import Event
from baton.trace.trace import Trace

_GLANCE_SECONDS = 0.05
_HEARD_SECONDS = 0.5
"""By then a run that goes on has heard."""
_MOST_BYTES = 1_000_000
"""Of one act: more is no word to an agent."""


class _Line(Struct, frozen=True):
    """An act, and the run it is for."""

    trace: str
    act: Act


class Now(Struct, frozen=True, kw_only=True):
    """The process in which runs of a store go on."""

    pid: int
    began: str
    """When that process began, as the system counts it: numbers of processes come again."""
    runs: dict[str, RunStanding] = {}


def acts_path(store: Path) -> Path:
    """Where acts are, for the runs of a store."""
    return store.with_name(store.name + "-acts")


def now_path(store: Path) -> Path:
    """Where it stands who works on the runs of a store."""
    return store.with_name(store.name + "-now")


def why_not_taken(found: os.stat_result) -> str | None:
    """Why acts are not taken from a file like this one; None: they are."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no plain file"
    if not hasattr(os, "geteuid"):
        return None
    if found.st_uid != os.geteuid():
        return "it belongs to somebody else"
    if found.st_mode & 0o022:
        return "others may write it"
    return None


@contextmanager
def _opened(store: Path, flags: int) -> Iterator[int]:
    path = acts_path(store)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{path} cannot be opened: {error.strerror}. Acts are kept there.") from None
    try:
        if (why := why_not_taken(os.fstat(descriptor))) is not None:
            raise UsageError(f"{path}: {why}, so nobody is steered by it. Type: rm {path}")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: one line is written at once
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def send(store: Path, trace_id: str, act: Act) -> Act:
    """Keep an act for a run, for good; returns it with its name, who did it and when."""
    moment = act.when or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    act = structs.replace(act, id=act.id or secrets.token_hex(8), by=act.by or who(), when=moment)
    line = msgspec.json.encode(_Line(trace_id, act)) + b"\n"
    if len(line) > _MOST_BYTES:
        raise UsageError(f"that is {len(line):,} bytes; a run is told at most {_MOST_BYTES:,} at once.")
    with _opened(store, os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor, _locked(descriptor):
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # who wrote it was killed
            line = b"\n" + line
        view = memoryview(line)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    return act


def forget(store: Path, trace_id: str) -> None:
    """A new run takes this name: what an earlier one of it was told is not meant for it."""
    with suppress(FileNotFoundError), _opened(store, os.O_RDWR) as descriptor, _locked(descriptor):
        body = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        kept = [line for line in body.split(b"\n")[:-1] if (_read(line) or _NOBODYS).trace != trace_id]
        left = b"".join(line + b"\n" for line in kept)
        if left != body:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, left, 0)


_NOBODYS = _Line("", Act())


def _read(line: bytes) -> _Line | None:
    """An act; None: a line that was cut off, or is none."""
    try:
        found = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.act.id else None


class Desk:
    """Where the runs of a store that go on in this process hear what people want, and say how they stand."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._read_to = 0
        self._waiting: dict[str, list[Act]] = {}
        self._looked = 0.0
        self._runs: dict[str, RunStanding] = {}
        self._told = b""
        self.problem: str | None = None
        """Why nobody is heard."""

    def seat(self, trace_id: str) -> RunSteering:
        """Where one run hears."""
        self._runs[trace_id] = RunStanding()
        self._write()
        return RunSteering(self, trace_id)

    def heard(self, trace_id: str) -> list[Act]:
        """What is new for one run."""
        now = time.monotonic()
        if now - self._looked > _GLANCE_SECONDS:
            self._looked = now
            try:
                self._look()
                self.problem = None
            except UsageError as error:
                self.problem = str(error)
        return self._waiting.pop(trace_id, [])

    def _look(self) -> None:
        try:
            found = acts_path(self._store).lstat()
        except OSError:
            self._read_to = 0
            return
        if found.st_size == self._read_to:
            return
        with suppress(FileNotFoundError), _opened(self._store, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            if size < self._read_to:  # an earlier run's acts were taken out; a run does nothing twice
                self._read_to = 0
            body = os.pread(descriptor, size - self._read_to, self._read_to)
            whole = body.rfind(b"\n") + 1
            self._read_to += whole
            for line in body[:whole].split(b"\n"):
                if (read := _read(line)) is not None:
                    self._waiting.setdefault(read.trace, []).append(read.act)

    def tell(self, trace_id: str, standing: RunStanding) -> None:
        """How one run stands; runs that nobody steers need not be drawn."""
        shown = standing if standing.paused or standing.requests else RunStanding()
        if shown != self._runs.get(trace_id):
            self._runs[trace_id] = shown
            self._write()

    def _write(self) -> None:
        body = msgspec.json.encode(Now(pid=os.getpid(), began=_began(os.getpid()), runs=self._runs))
        if body == self._told:
            return
        self._told = body
        with suppress(OSError):  # a full disk is told by the run itself
            _put(now_path(self._store), body)

    def leave(self) -> None:
        """Nothing goes on here any more."""
        with suppress(OSError):
            now_path(self._store).unlink()


def _put(path: Path, body: bytes) -> None:
    """Whole or not at all, and for its owner's eyes."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


class RunSteering:
    """The steering of one run (see `baton.team.people.Steering`)."""

    def __init__(self, desk: Desk, trace_id: str) -> None:
        self._desk = desk
        self._trace_id = trace_id

    def heard(self) -> list[Act]:
        """What is new since it was last asked."""
        return self._desk.heard(self._trace_id)

    def tell(self, standing: RunStanding) -> None:
        """How the run stands."""
        self._desk.tell(self._trace_id, standing)


@contextmanager
def desk_of(store: Path) -> Iterator[Desk]:
    """The desk of a store, for as long as runs go on in it."""
    desk = Desk(store)
    try:
        yield desk
    finally:
        desk.leave()


def now(store: Path) -> Now | None:
    """Who works on the runs of a store; None: nobody does."""
    try:
        found = msgspec.json.decode(now_path(store).read_bytes(), type=Now)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if _began(found.pid) == found.began else None


def _began(pid: int) -> str:
    """When a process began, in the system's own count; empty: it is gone, or the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    if Path("/proc/self").exists():
        return ""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "?"


def steered_trace(store: Path, trace_id: str | None) -> TraceSummary:
    """The run of a store that is meant: the one that is named, or the only one that is not finished."""
    found = list_traces(store)
    if trace_id is not None:
        for summary in found:
            if summary.trace_id == trace_id:
                return summary
        raise UsageError(
            f"{store} has no trace {trace_id!r}. {nearest(trace_id, [s.trace_id for s in found])}"
        )
    left = [summary for summary in found if not summary.finished]
    working = now(store)
    going = [summary for summary in left if working is not None and summary.trace_id in working.runs]
    for some in (going, left):
        if len(some) == 1:
            return some[0]
    if not left:
        raise UsageError(f"every run in {store} has ended, so there is nothing to steer.")
    raise UsageError(
        f"{len(left)} runs in {store} are not finished. Type: --trace ID, for example --trace {left[0].trace_id}"
    )


async def outcome(store: Path, trace_id: str, act: Act, seconds: float) -> tuple[Event | None, Trace]:
    """What came of an act, when the run's trace says so; None: it has not until then."""
    began = time.monotonic()
    until = began + seconds
    while True:
        (trace,) = read_store(store, [trace_id])
        for event in reversed(trace.events):
            if event.extra.get(ACT) == act.id:
                return event, trace
        if act.do == "edit" and act.to not in trace.position:  # it may be long until that happens
            until = min(until, began + _HEARD_SECONDS)
        if trace.finished or time.monotonic() >= until or now(store) is None:
            return None, trace
        await asyncio.sleep(0.1)


class Wish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody wants of a run, before it is an act with a name."""

    do: Doing
    to: str = ""
    text: str = ""
    by: str = ""


async def carry(store: Path, trace_id: str, wish: Wish, seconds: float) -> dict[str, str]:
    """Do something to a run, and say what came of it. Raises `UsageError` where the run could not do it."""
    act = send(store, trace_id, Act(do=wish.do, to=wish.to, text=wish.text, by=wish.by))
    event, trace = await outcome(store, trace_id, act, seconds)
    if event is not None and event.status == "invalid":
        raise UsageError(f"{event.extra.get('why', 'it could not be done')}")
    if event is not None:
        return {"state": "done", "event": event.id}
    return {"state": "stands" if wish.do == "edit" and not trace.finished else "kept"}


def is_at_work(place: Path, trace_id: str) -> bool:
    """Whether a run goes on in a store, or in one of a folder's."""
    stores = stores_in(place) if place.is_dir() else [place]
    return any((working := now(store)) is not None and trace_id in working.runs for store in stores)


def standing_in(store: Path, trace_id: str) -> dict[str, Any] | None:
    """How a run stands, as fields; None: it is not at work."""
    working = now(store)
    standing = None if working is None else working.runs.get(trace_id)
    return None if standing is None else dict(msgspec.to_builtins(standing))
