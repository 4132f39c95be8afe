"""The journal of a live recorder: every sighting is a line of its own, in the file before the hook returns.

Invariant: lines are only ever added, each by one write, so a program that is killed loses nothing that was seen, and a
reader finds whole lines but perhaps for the last. What a recorder failed at stands there too (`lost`), so that an
import of the journal counts it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from baton.connect.import_report import ImportReport
from baton.connect.redaction import Redaction
from baton.connect.seen import Seen, SeenCall, SeenEvent, SeenSession
from baton.errors import UsageError

SUFFIX = ".seen.jsonl"
FOLDER = "journal"
"""Where journals are, in the folder that a program is recorded into."""


class NotTold(msgspec.Struct, tag_field="seen", tag="lost", frozen=True, kw_only=True):
    """Something happened that the recorder could not tell; its own fault, never the program's."""

    reason: str
    at: str = ""


class SightingJournal:
    """An append-only file of sightings, for any number of threads."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        report: ImportReport,
        *,
        payloads: bool,
        redact: Iterable[str] | None,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self._redact = None if redact is None else Redaction(redact)
        try:
            journals = self.folder / FOLDER
            journals.mkdir(parents=True, exist_ok=True)
            stamp = time.strftime("%Y%m%d-%H%M%S")
            self.path, self._file = _new_file(journals, f"{stamp}-{os.getpid()}")
        except OSError as error:
            raise UsageError(
                f"cannot record into {str(self.folder)!r}: {error.strerror}. Give a folder that can be written."
            ) from None
        self._payloads = payloads
        self._report = report
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder(enc_hook=str).encode
        self.lines = 0

    def write(self, sighting: Seen | NotTold) -> None:
        """Add a line. It survives the death of the process when this returns."""
        if isinstance(sighting, NotTold):
            sighting = msgspec.structs.replace(
                sighting, at=self._clean(sighting.at) if self._payloads else ""
            )
        else:
            sighting = self._told(sighting)
        line = self._encode(sighting) + b"\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)  # unbuffered: one write to the operating system
                self.lines += 1

    def close(self) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.close()

    def _told(self, sighting: Seen) -> Seen:
        """What may be written down: no secrets, and without payloads no content at all."""
        given = {name: getattr(sighting, name) for name in _CONTENT.get(type(sighting), ())}
        given = {name: value for name, value in given.items() if value}
        if not given:
            return sighting
        if self._payloads and self._redact is None:
            return sighting
        if not self._payloads:
            return msgspec.structs.replace(sighting, **{name: _NOTHING.get(name) for name in given})
        return msgspec.structs.replace(
            sighting, **{name: self._clean(value) for name, value in given.items()}
        )

    def _clean_under(self, name: Any, value: Any) -> Any:
        if isinstance(value, str) and self._redact is not None:
            return self._redact.under(str(name), value, self._report)
        return self._clean(value)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str) and self._redact is not None:
            return self._redact(value, self._report)
        if isinstance(value, dict):
            return {name: self._clean_under(name, part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return tuple(self._clean(part) for part in value)
        return value


_CONTENT: dict[type, tuple[str, ...]] = {
    SeenSession: ("task", "meta"),
    SeenCall: ("prompt", "completion", "extra"),
    SeenEvent: ("content", "extra"),
}
_NOTHING: dict[str, Any] = {"meta": {}, "extra": {}}


def _new_file(folder: Path, stem: str) -> tuple[Path, Any]:
    """A file that nobody else writes: a second recorder of one process in one second gets a number."""
    for number in range(1_000):
        path = folder / f"{stem}{f'-{number}' if number else ''}{SUFFIX}"
        try:
            return path, path.open("xb", buffering=0)
        except FileExistsError:
            continue
    raise FileExistsError(17, "a thousand recorders began in one second", str(folder))
