"""Traces that follow what is received: held as spans, assembled again when something new came, written whole.

Spans come late and in any order, so a trace is made anew from all its spans each time; this takes at most a part of the
time (`_SHARE`), and a trace that nothing was added to for a while is let go of. If more comes for it after all, its
spans are read from the journal again. So what is on disk is always what `baton import` makes of the journal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from baton.connect.assemble import Assembler
from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.files import read_spans
from baton.connect.readers.otlp.reader import Traces
from baton.connect.readers.otlp.span import LogRecord, OtelSpan
from baton.connect.readers.otlp.telling import sightings_of
from baton.connect.receiving.kept_content import KeptContent
from baton.connect.receiving.request_journal import RequestJournal
from baton.connect.trace_folder import write_if_other, write_report
from baton.trace.formats.durable import Lock

_EVERY_S = 0.5
_SHARE = 10  # assembling may take one part in this many of the time
_IDLE_S = 600.0


class KeptTraces:
    """The traces of one receiver, in one folder."""

    def __init__(
        self, out: Path, journal: RequestJournal, content: KeptContent, *, idle_seconds: float = _IDLE_S
    ) -> None:
        """`content` has rewritten what is added; what an earlier receiver wrote down passes it here."""
        self.report = ImportReport()
        self.num_traces = 0
        self._journal = journal
        self._content = content
        self._out = out
        self._held = Lock(
            out / ".receiving-lock", f"another receiver writes into {out}: one process at a time."
        )
        self._idle_s = idle_seconds
        self._lock = threading.Lock()
        self._traces = Traces()
        self._changed: set[str] = set()
        self._touched: dict[str, float] = {}
        self._let_go: set[str] = set()
        self._known: set[str] = set()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._worker = threading.Thread(target=self._keep_up, name="baton-receive", daemon=True)

    def start(self) -> None:
        """Begin with what earlier receivers wrote down: one that was killed may not have made traces of it."""
        for path in self._journal.earlier():
            self.add(self._content.kept(read_spans(path, self.report), ImportReport()), counted=True)
        self._worker.start()

    def add(self, found: Iterable[OtelSpan | LogRecord], *, counted: bool = False) -> None:
        with self._lock:
            found = list(found)
            if not counted:
                self.report.read(len(found))
            touched = self._traces.add(found, self.report)
            self._changed |= touched
            now = time.monotonic()
            for trace_id in touched:
                self._touched[trace_id] = now
        self._news.set()

    def close(self) -> None:
        """Everything that came is a trace when this returns."""
        self._closing.set()
        self._news.set()
        if self._worker.is_alive():
            self._worker.join()
        try:
            self.bring_up_to_date()
        finally:
            self._held.release()

    def bring_up_to_date(self) -> None:
        """Make traces of all that changed."""
        with self._lock:
            changed, self._changed = sorted(self._changed), set()
        for trace_id in changed:
            self._assemble(trace_id)
        if changed:
            write_report(self._out, self.report)

    def _assemble(self, trace_id: str) -> None:
        again = trace_id in self._let_go
        earlier = self._from_journal(trace_id) if again else []
        with self._lock:
            if again:
                self._let_go.discard(trace_id)
                self._traces.add(earlier, ImportReport())
            spans = list(self._traces.held(trace_id))
        report = ImportReport()  # of a trace that is made again, only the last time counts
        assembler = Assembler("otlp", report, live=not self._closing.is_set())
        assembler.see(sightings_of(trace_id, spans, report))
        for trace in assembler.traces():
            write_if_other(self._out / f"{trace.trace_id}.jsonl", trace)
            if trace.trace_id not in self._known:
                self._known.add(trace.trace_id)
                self.num_traces += 1

    def _from_journal(self, trace_id: str) -> list[OtelSpan | LogRecord]:
        paths = sorted(self._journal.folder.iterdir())
        found = (one for path in paths for one in read_spans(path, ImportReport()))
        return self._content.kept((one for one in found if one.trace_id == trace_id), ImportReport())

    def _forget(self) -> None:
        now = time.monotonic()
        with self._lock:
            for trace_id, touched in list(self._touched.items()):
                if now - touched > self._idle_s and trace_id not in self._changed:
                    del self._touched[trace_id]
                    self._traces.take(trace_id, ImportReport())
                    self._let_go.add(trace_id)

    def _keep_up(self) -> None:
        wait = _EVERY_S
        while not self._closing.is_set():
            self._news.wait(timeout=self._idle_s / 4)
            self._closing.wait(wait)
            self._news.clear()
            began = time.monotonic()
            try:
                self.bring_up_to_date()
            except Exception as error:  # the journal has it all: say it, and go on receiving
                print(f"baton receive: traces were not brought up to date: {error}", file=sys.stderr)
            self._forget()
            wait = max(_EVERY_S, _SHARE * (time.monotonic() - began))
