"""The writing connection of a live store: how durable, and transactions whose errors a person can read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from baton.errors import BatonError, UsageError, nearest
from baton.trace.formats.durable import NotWritten, file_error, sync_directory
from baton.trace.formats.sqlite.store_read import check_schema, no_room, reading
from baton.trace.formats.sqlite.store_rows import SCHEMA
from baton.trace.formats.sqlite.witness import acknowledged, check_commits

Durability = Literal["power", "process"]
"""What a commit survives: loss of power, or the death of the process (SIGKILL) alone."""
_SYNCHRONOUS: dict[Durability, str] = {"power": "FULL", "process": "NORMAL"}


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """All or nothing, with SQLite's errors in our words."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # some failures have already rolled back
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise _write_error(path, error) from None


def _write_error(path: Path, error: sqlite3.Error) -> BatonError:
    why = no_room(path, getattr(error, "sqlite_errorname", "")) or str(error)
    return NotWritten(
        f"cannot write {path}: {why}. What was committed before is there, and what was appended since can be committed "
        "once there is room."
    )


def connect(path: Path, durability: Durability) -> sqlite3.Connection:
    if durability not in _SYNCHRONOUS:
        raise UsageError(f"there is no durability {durability!r}. {nearest(durability, _SYNCHRONOUS)}")
    expected = acknowledged(path)
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.OperationalError:
        raise file_error(path, "open the store") from None
    try:
        with reading(path):
            # Empty also when the process that made it was killed before its tables were there.
            (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if num_tables:
                check_schema(connection, path)
            check_commits(connection, path, expected)
            _configure(connection, durability)
            if not num_tables:
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            sync_directory(path.parent)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, durability: Durability) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
    connection.execute(f"PRAGMA fullfsync = {durability == 'power'}")  # macOS: past the drive's cache
    # 32 MiB each of pages and of log: a thousand traces that grow together touch a thousand pages
    # a commit, and fetching and rewriting those through SQLite's small defaults halves the rate.
    connection.execute("PRAGMA cache_size = -32768")
    connection.execute("PRAGMA wal_autocheckpoint = 8192")
