"""From the journal of a recorder to traces beside it, while the program runs and when it ends.

Only what is new in the journal is read, and only runs that it tells of are assembled again. A run that ended is let go
of; should more come of it (a sub-agent in the background), it is read again from the journal's beginning.
"""

from __future__ import annotations

from pathlib import Path

from baton.connect.assemble import Assembler
from baton.connect.import_report import ImportReport
from baton.connect.readers.seen_journal import decoded, read_journal
from baton.connect.seen import Seen, SeenSession
from baton.connect.trace_folder import write_if_other, write_report


class Assembling:
    """Keeps a folder's traces up with one journal."""

    def __init__(self, journal: Path, folder: Path, report: ImportReport) -> None:
        self._journal = journal
        self._folder = folder
        self._report = report
        self._read_to = 0
        self._lines = 0
        self._open: dict[str, list[Seen]] = {}
        self._ended: set[str] = set()

    def advance(self, *, live: bool = True) -> None:
        """Bring the traces up to the journal. `live`: runs that have not ended are still going on."""
        changed = self._read()
        for session in changed:
            if session in self._ended:
                self._ended.discard(session)
                again = read_journal(self._journal, ImportReport())
                self._open[session] = [seen for seen in again if seen.session == session]
        for session in changed if live else [*changed, *(self._open.keys() - changed)]:
            sightings = self._open[session]
            done = any(isinstance(seen, SeenSession) and seen.finished for seen in sightings)
            self._write(sightings, live=not done)
            if done:
                del self._open[session]
                self._ended.add(session)
        if changed:
            write_report(self._folder, self._report)

    def _read(self) -> dict[str, None]:
        """What is new goes to its session; which sessions those are."""
        changed: dict[str, None] = {}
        with self._journal.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                self._lines += 1
                self._report.read()
                seen = decoded(line, self._report, f"{self._journal.name}:{self._lines}")
                if seen is not None:
                    self._open.setdefault(seen.session, []).append(seen)
                    changed[seen.session] = None
        return changed

    def _write(self, sightings: list[Seen], *, live: bool) -> None:
        # A run is assembled many times; what was joined and inferred is counted when it has ended.
        assembler = Assembler("seen", ImportReport() if live else self._report, live=live)
        assembler.see(sightings)
        for trace in assembler.traces():
            write_if_other(self._folder / f"{trace.trace_id}.jsonl", trace)
