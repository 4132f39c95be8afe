"""Reading a live store, also while another process writes it.

One read transaction per call: what comes back is the store as it was at one moment. Every row is
checked (see `sqlite`), so a damaged store raises `CorruptError` and never gives a wrong record.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import DecodeError, Struct

from baton.errors import CorruptError, FormatError, UsageError, nearest
from baton.installed import upgrade_hint
from baton.trace.formats.decoding import no_collection, share_strings
from baton.trace.formats.durable import NotWritten, why_not_written
from baton.trace.formats.sqlite.store_rows import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    SELECT_TRACES,
    TraceRow,
    decode_payload,
    decode_record,
    first_key,
    record_crc,
    record_seed,
    store_crc,
)
from baton.trace.formats.sqlite.witness import acknowledged, check_commits
from baton.trace.records import Call, Charge, Credit, Edge, Event, Payload, Reward
from baton.trace.trace import Trace

# Stores this process has open for writing. See `sqlite` on why their files must not be opened.
OPEN_HERE: set[str] = set()
_LINKS = """
SELECT key, links.digest, body FROM links LEFT JOIN payloads USING (digest)
WHERE key >= ? AND key < ? ORDER BY key
"""
_AHEAD = "SELECT key, crc, body FROM ahead WHERE key >= ? AND key < ? ORDER BY key"
_RECORDS = "SELECT key, crc, body FROM records WHERE key >= ? AND key < ? ORDER BY key"


class TraceSummary(Struct, frozen=True, kw_only=True):
    """What a store knows of a trace without reading its records."""

    trace_id: str
    task_id: str
    finished: bool
    num_events: int
    num_records: int


_NO_MARK = b"\0\0\0\0"


def is_store(path: str | Path) -> bool:
    """Whether the file is a live store, told from its first bytes."""
    if os.path.realpath(path) in OPEN_HERE:
        return True
    with Path(path).open("rb") as file:
        head = file.read(72)
    if not head.startswith(b"SQLite format 3\0"):
        return False
    if head[68:72] != _NO_MARK:
        return head[68:72] == APPLICATION_ID.to_bytes(4, "big")
    # The mark is still in the log, or never got there: its maker was killed in the first moment.
    try:
        with contextlib.closing(_connect(Path(path))) as connection:
            return _mark(connection) == APPLICATION_ID or _is_unborn(connection, Path(path))
    except sqlite3.Error:
        return False


def _mark(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _is_unborn(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether nothing was ever in it. A store that lost its pages has its mark in the file all the same."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if _mark(connection) != 0 or tables != 0 or os.path.realpath(path) in OPEN_HERE:
        return False
    with path.open("rb") as file:
        return file.read(72)[68:] == _NO_MARK


def list_traces(path: str | Path) -> list[TraceSummary]:
    """The traces of a store in the order they began. Reads no record."""
    with _snapshot(Path(path)) as connection:
        if _is_unborn(connection, Path(path)):
            return []
        return [
            TraceSummary(
                trace_id=row.trace_id,
                task_id=row.read_header().task_id,
                finished=row.ending is not None,
                num_events=row.num_events,
                num_records=row.num_records,
            )
            for row in read_rows(connection)
        ]


def read_store(path: str | Path, trace_ids: Iterable[str] | None = None) -> Iterator[Trace]:
    """All traces, or those named in their order, one in memory at a time.

    An unfinished one has `finished=False`. The snapshot lasts until the iterator ends; close it
    if you leave early, because a writer's log cannot shrink while someone reads it.
    """
    with _snapshot(Path(path)) as connection:
        if _is_unborn(connection, Path(path)) and trace_ids is None:
            return
        rows = (
            read_rows(connection) if trace_ids is None else [find_row(connection, name) for name in trace_ids]
        )
        for row in rows:
            yield read_trace(connection, row)


def read_rows(connection: sqlite3.Connection) -> list[TraceRow]:
    rows = [TraceRow.checked(columns) for columns in connection.execute(f"{SELECT_TRACES} ORDER BY number")]
    total = connection.execute("SELECT num_traces, crc FROM store").fetchall()
    if total != [(len(rows), store_crc(len(rows)))]:
        raise CorruptError(f"{len(rows)} traces are there and its own count is {total}")
    return rows


def find_row(connection: sqlite3.Connection, trace_id: str) -> TraceRow:
    columns = connection.execute(f"{SELECT_TRACES} WHERE trace_id = ?", (trace_id,)).fetchone()
    if columns is None:
        known = [row.trace_id for row in read_rows(connection)]
        hint = nearest(trace_id, known) if 0 < len(known) <= 200 else f"It holds {len(known):,} traces."
        raise UsageError(f"the store has no trace {trace_id!r}. {hint}")
    row = TraceRow.checked(columns)
    if row.trace_id != trace_id:
        raise CorruptError(f"its index has {row.trace_id!r} under {trace_id!r}")
    return row


def read_trace(connection: sqlite3.Connection, row: TraceRow) -> Trace:
    """One trace, every row of it checked."""
    with no_collection():
        found = _read_records(connection, row)
        pool: dict[str, str] = {}
        for kind, records in found.items():
            if kind is not Payload:
                share_strings(records, pool)
        return Trace.gathered(row.read_header(), found, row.read_end())


def _read_records(connection: sqlite3.Connection, row: TraceRow) -> dict[type, list[Any]]:
    first = first_key(row.number)
    limits = (first, first_key(row.number + 1))
    found: dict[type, list[Any]] = {kind: [] for kind in (Event, Edge, Call, Payload, Reward, Credit, Charge)}
    links: set[int] = set()
    for key, digest, body in connection.execute(_LINKS, limits):
        found[Payload].append(decode_payload(digest, body))
        links.add(key - first)
    seed = record_seed(row.trace_id)
    n = 0
    for key, crc, body in connection.execute(_RECORDS, limits):
        while n in links:
            n += 1
        if key != first + n or type(body) is not bytes or record_crc(seed, n, body) != crc:
            raise CorruptError(f"record {n} of trace {row.trace_id!r} is missing or fails its checksum")
        record = decode_record(body)
        found[type(record)].append(record)
        n += 1
    num_records = sum(map(len, found.values()))
    if num_records != row.num_records or len(found[Event]) != row.num_events:
        raise CorruptError(f"trace {row.trace_id!r} has {num_records} of its {row.num_records} records")
    return found


def read_kept(connection: sqlite3.Connection, row: TraceRow) -> list[bytes]:
    """What was kept ahead of a trace that has not ended, every row of it checked."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ahead'").fetchone():
        return []
    first, seed = first_key(row.number), record_seed(row.trace_id)
    found: list[bytes] = []
    limits = (first, first_key(row.number + 1))
    for key, crc, body in connection.execute(_AHEAD, limits):
        n = len(found)
        if key != first + n or type(body) is not bytes or record_crc(seed, n, body) != crc:
            raise CorruptError(f"what was kept for trace {row.trace_id!r} fails its checksum at {n}")
        found.append(body)
    return found


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong while a store is read is said in our words, with the file's name."""
    try:
        yield
    except CorruptError as error:
        raise CorruptError(f"{path} was damaged after it was written: {error}.") from None
    except DecodeError as error:
        raise FormatError(f"{path} holds a record this version of Baton cannot read: {error}.") from None
    except UnicodeDecodeError as error:  # in what SQLite takes for text
        raise CorruptError(f"{path} was damaged after it was written: {error}.") from None
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")) and (
            why := no_room(path, name)
        ):
            # SQLite makes files of its own beside a store, also to read it.
            raise NotWritten(f"{path} cannot be opened: {why}.") from None
        if name.startswith(("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise FormatError(
                f"{path} cannot be opened: {error}. Is its folder readable, or the disk full?"
            ) from None
        raise CorruptError(
            f"{path} was damaged after it was written, or is no Baton store: {error}."
        ) from None


def no_room(path: Path, name: str) -> str | None:
    """Why SQLite could not write a store, from its error's name and by trying; None where that is not known."""
    return why_not_written(path) or ("the disk is full" if name.startswith("SQLITE_FULL") else None)


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    application = _mark(connection)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise FormatError(f"{path} is a SQLite file but not a Baton store.")
    if version != SCHEMA_VERSION:
        raise FormatError(
            f"{path} is a store of version {version}; this Baton reads version {SCHEMA_VERSION}. "
            f"Type: {upgrade_hint()}"
        )


@contextlib.contextmanager
def _snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection inside one read transaction."""
    if not path.is_file():
        raise FormatError(f"there is no file {path}.")
    expected = acknowledged(path)
    with reading(path), contextlib.closing(_connect(path)) as connection:
        if not _is_unborn(connection, path):
            check_schema(connection, path)
        connection.execute("BEGIN")
        check_commits(connection, path, expected)
        yield connection


def _connect(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(os.path.realpath(path))}?mode=ro"
    connection = _open(address)
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        connection.close()
        # A closed store in a directory we may not write to: SQLite cannot make its index file
        # there, and need not, because nobody is writing.
        cannot = error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
        if not cannot or Path(f"{path}-wal").exists():
            raise
        return _open(f"{address}&immutable=1")
    return connection


def _open(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
