"""Traces that follow their sessions: assembled again when something new came, written whole.

Assembling takes at most a part of the time (`_SHARE`), so a busy server is not slowed by its own bookkeeping. What is
on disk is always what the journal tells.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from baton.connect.trace_folder import write_if_other
from baton.errors import BatonError
from baton.serve.journal import SUFFIX, KeptSession, read_session, sessions_in
from baton.serve.session_trace import session_trace
from baton.serve.sessions import ProgramSession

if TYPE_CHECKING:
    from baton.serve.server import Serving

_EVERY_S = 0.5
_SHARE = 10  # assembling may take one part in this many of the time


class Following:
    """Keeps the traces of a server's sessions up with them."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._seen: dict[str, int] = {}
        self._closing = threading.Event()
        self._assembling = threading.Lock()
        self._worker = threading.Thread(target=self._keep_up, name="baton-following", daemon=True)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """Everything that was acknowledged is in a trace when this returns."""
        self._closing.set()
        if self._worker.is_alive():
            self._worker.join()
        for session in self._serving.sessions.values():
            self.bring_up_to_date(session)

    def bring_up_to_date(self, session: ProgramSession) -> None:
        """Write the session's trace if it changed."""
        with self._assembling:
            changed = session.changed
            if self._seen.get(session.name) == changed or not session.journal.kept.by_id:
                return
            write_trace(self._serving.out, session.journal.kept)
            self._seen[session.name] = changed

    def _keep_up(self) -> None:
        self._catch_up()
        wait = _EVERY_S
        while not self._closing.wait(wait):
            began = time.monotonic()
            for session in self._serving.sessions.values():
                try:
                    self.bring_up_to_date(session)
                except Exception as error:  # the journal has it all: say it, and go on serving
                    print(
                        f"baton serve: the trace of {session.name} was not brought up to date: {error}",
                        file=sys.stderr,
                    )
            wait = max(_EVERY_S, _SHARE * (time.monotonic() - began))

    def _catch_up(self) -> None:
        """The traces that an earlier server was behind with, without haste: whoever asks now comes first."""
        began, hurry = time.monotonic(), False
        for journal in sessions_in(self._serving.out):
            if not is_behind(self._serving.out, journal):
                continue
            if (why := remake(self._serving.out, journal)) is not None:
                print(f"baton serve: {why}", file=sys.stderr)
            hurry = hurry or self._rest(began)
            began = time.monotonic()

    def _rest(self, began: float) -> bool:
        """Rest after work that began then; True: the server closes, so there is no time to rest."""
        return self._closing.wait(_SHARE * (time.monotonic() - began))


def write_trace(out: Path, kept: KeptSession) -> None:
    """What a session's journal tells, as a trace beside it."""
    trace = session_trace(
        kept.exchanges, list(kept.posted), list(kept.spans), name=kept.name, about=kept.about
    )
    write_if_other(out / f"{kept.name}.jsonl", trace)


def rebuild(out: Path) -> Iterator[str]:
    """Make the traces that a killed server was behind with; what cannot be made of a journal is told, in words."""
    for journal in sessions_in(out):
        if is_behind(out, journal) and (why := remake(out, journal)) is not None:
            yield why


def is_behind(out: Path, journal: Path) -> bool:
    """Whether a session's trace is older than its journal, or not there."""
    try:
        return (out / journal.name).stat().st_mtime_ns < journal.stat().st_mtime_ns
    except OSError:
        return True


def remake(out: Path, journal: Path) -> str | None:
    """Make a session's trace of its journal; why it was not made, or None."""
    try:
        kept = read_session(journal)
        if kept.by_id:
            write_trace(out, kept)
    except (BatonError, OSError) as error:
        return f"the trace of {journal.name.removesuffix(SUFFIX)} was not made: {error}"
    return None
