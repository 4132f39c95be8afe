"""Every request on disk before it is acknowledged.

Protobuf goes into a file in which each request stands behind its length, JSON into JSON Lines: both are what
`baton import` reads, so a journal is a source of its own. Files are only ever added to, each by one process; after a
kill the last entry may be cut off, and that one was never acknowledged.
"""

from __future__ import annotations

import os
import threading
import time
from io import FileIO
from pathlib import Path

import msgspec

from baton.connect.receiving.otlp_answers import varint
from baton.errors import UsageError

FOLDER = "received"
_ENDINGS = {
    ("traces", False): ".pb",
    ("logs", False): ".logs.pb",
    ("traces", True): ".jsonl",
    ("logs", True): ".logs.jsonl",
}


class RequestJournal:
    """The files that one receiver writes, in a folder that may hold those of earlier ones."""

    def __init__(self, out: Path) -> None:
        self.folder = out / FOLDER
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot receive into {str(out)!r}: {error.strerror}. Give a folder that can be written: --out DIR"
            ) from None
        self._stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self._files: dict[tuple[str, bool], FileIO] = {}
        self._lock = threading.Lock()

    def earlier(self) -> list[Path]:
        """Journals of receivers before this one."""
        return [path for path in sorted(self.folder.iterdir()) if not path.name.startswith(f"{self._stem}.")]

    def write(self, signal: str, body: bytes, *, is_json: bool) -> None:
        """Returns once the request is on disk. `OSError`: it is not."""
        if is_json:
            entry = msgspec.json.format(body, indent=-1) + b"\n"
        else:
            entry = varint(len(body)) + body
        with self._lock:
            file = self._file(signal, is_json)
            before = file.tell()
            try:
                written = file.write(entry)
                if written != len(entry):
                    raise OSError(28, "No space left on device")
                os.fdatasync(file.fileno())
            except OSError:
                file.truncate(before)  # half an entry would make the next one unreadable
                raise

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _file(self, signal: str, is_json: bool) -> FileIO:
        kind = signal, is_json
        if kind not in self._files:
            path = self.folder / f"{self._stem}{_ENDINGS[kind]}"
            self._files[kind] = path.open("ab", buffering=0)  # unbuffered: one write each
        return self._files[kind]
