"""What all live recorders share: the journal, one lock, and a promise not to break the program they watch.

Invariant: no hook of a recorder raises. What goes wrong inside is said once on stderr, counted, and written into the
journal, so that the import's report has it.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module, metadata
from typing import Any, Self, TypeVar

from baton.connect.import_report import ImportReport
from baton.connect.live.assembling import Assembling
from baton.connect.live.journal import NotTold, SightingJournal
from baton.connect.live.telling import Telling
from baton.connect.seen import Seen
from baton.errors import UsageError

R = TypeVar("R")
_SHARE = 20  # assembling may take one part in this many of the program's time
_EVERY_S = 1.0


class LiveRecorder:
    """A recorder of one framework; subclasses listen and tell."""

    framework: str
    """The package whose version goes into the trace."""

    def __init__(
        self, folder: str | os.PathLike[str], *, payloads: bool = True, redact: Iterable[str] | None = None
    ) -> None:
        self.report = ImportReport()
        """What was recorded, as after an import."""
        self.journal = SightingJournal(folder, self.report, payloads=payloads, redact=redact)
        self._assembling = Assembling(self.journal.path, self.journal.folder, self.report)
        self.failures: Counter[str] = Counter()
        """What went wrong inside the recorder -> how often."""
        self.lock = threading.RLock()
        self._tellings: dict[str, Telling] = {}
        self._closed = threading.Event()
        self._system = f"{self.framework} {version_of(self.framework)}"
        self.prepare()
        self._worker = threading.Thread(target=self._keep_up, name="baton-recorder", daemon=True)
        self._worker.start()
        atexit.register(self.close)

    def prepare(self) -> None:
        """Make what a subclass keeps."""

    def see(self, sighting: Seen) -> None:
        self.journal.write(sighting)

    def telling(self, session: str) -> tuple[Telling, bool]:
        """The session of that id, and whether it is new."""
        known = self._tellings.get(session)
        if known is not None:
            return known, False
        made = self._tellings[session] = Telling(self.see, session, system=self._system)
        return made, True

    def forget(self, session: str) -> None:
        """Nothing more will come: what is kept in memory of a session goes."""
        self._tellings.pop(session, None)

    def failed(self, where: str, error: BaseException) -> None:
        """An error of ours: said once, counted always."""
        reason = f"the recorder failed in {where}: {type(error).__name__}"
        first = not self.failures
        self.failures[reason] += 1
        try:
            if first:
                print(
                    f"baton: {reason}: {error}. Your program goes on; what follows may be recorded in part, and "
                    "further failures are only counted.",
                    file=sys.stderr,
                )
            self.journal.write(NotTold(reason=reason, at=str(error)[:200]))
        except Exception:  # stderr is closed, or the disk is full: there is nobody left to tell
            pass

    def close(self) -> None:
        """Stop listening and assemble what was seen. May be called twice."""
        with self.lock:
            if self._closed.is_set():
                return
            self._closed.set()
        atexit.unregister(self.close)
        try:
            self.detach()
        except Exception as error:
            self.failed("detach", error)
        self.journal.close()
        self._worker.join(timeout=30)
        self._bring_up_to_date(live=False)

    def attach(self) -> None:
        """Begin to listen, where the framework is told so by a call and not by an argument."""

    def detach(self) -> None:
        """Stop listening."""

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep_up(self) -> None:
        """Assemble while the program runs, so that a viewer shows it; never for more than a share of its time."""
        wait, done = _EVERY_S, 0
        while not self._closed.wait(wait):
            if self.journal.lines == done:
                continue
            done, began = self.journal.lines, time.monotonic()
            self._bring_up_to_date()
            wait = max(_EVERY_S, _SHARE * (time.monotonic() - began))

    def _bring_up_to_date(self, *, live: bool = True) -> None:
        try:
            self._assembling.advance(live=live)
        except Exception as error:
            self.failed("assembling", error)


def guarded(hook: Callable[..., R]) -> Callable[..., R | None]:
    """A hook that never raises; the recorder's lock is held while it runs."""

    @functools.wraps(hook)
    def safe(self: Any, *args: Any, **kwargs: Any) -> R | None:
        try:
            with self.lock:
                return hook(self, *args, **kwargs)
        except Exception as error:
            self.failed(hook.__name__, error)
            return None

    return safe


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def framework_module(name: str, package: str) -> Any:
    """A module of the framework that is listened to, which is the user's own install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise UsageError(
            f"this recorder listens to {package}, which is not installed here. Type: pip install {package}"
        ) from None
