"""How many commits a store has acknowledged, in a small file beside it for as long as the store is not closed.

SQLite takes a write-ahead log that was damaged, or is gone, for one that was cut short, and gives the store as it was
some commits ago, or empty. The store counts its commits; whoever finds fewer than were acknowledged is told so.

The file is written after each commit and is not synced: it survives the death of the process, as the log does. A
witness that is damaged itself says nothing.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from baton.errors import CorruptError

ADD_COLUMN = "ALTER TABLE store ADD COLUMN commits INTEGER NOT NULL DEFAULT 0"
"""Stores of 0.1 and 0.2 get it with their first commit, and those versions do not mind it."""


class Witness:
    """Writes down the commits of one store."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._descriptor: int | None = None

    def acknowledge(self, commits: int) -> None:
        """So many commits are durable."""
        with suppress(OSError):  # without it the store is as good as it is without a witness
            if self._descriptor is None:
                self._descriptor = os.open(_place(self._store), os.O_RDWR | os.O_CREAT, 0o666)
            number = commits.to_bytes(8, "little")
            os.pwrite(self._descriptor, number + crc32(number).to_bytes(4, "little"), 0)

    def close(self) -> None:
        """The store is closed; where that left no log, no witness is needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if not Path(f"{self._store}-wal").exists():
            _place(self._store).unlink(missing_ok=True)


def acknowledged(store: Path) -> int:
    """The commits that were acknowledged, as far as a witness says. Read it before the store."""
    try:
        kept = _place(store).read_bytes()
    except OSError:
        return 0
    number = kept[:8]
    return int.from_bytes(number, "little") if crc32(number).to_bytes(4, "little") == kept[8:] else 0


def num_commits(connection: sqlite3.Connection) -> int | None:
    """The commits that a store has, by its own count; None where it has no such count yet."""
    columns = [row[1] for row in connection.execute("PRAGMA table_info(store)")]
    if "commits" not in columns:
        return None
    return int(connection.execute("SELECT commits FROM store").fetchone()[0])


def check_commits(connection: sqlite3.Connection, store: Path, expected: int) -> None:
    """Refuse a store that has fewer commits than were acknowledged."""
    if not expected:
        return
    found = num_commits(connection) or 0
    if found < expected:
        raise CorruptError(
            f"its log ({store.name}-wal) is damaged or gone, and the newest {expected - found:,} of its {expected:,} "
            f"commits are lost. To go on with what is left, type: rm {shlex.quote(str(_place(store)))} ; or put both "
            "files back from a copy"
        )


def _place(store: Path) -> Path:
    return Path(f"{store}-commits")
