"""The live store: one SQLite file (WAL) that holds many traces while they are written.

Invariants:
- `Store.commit` is a group commit. When it returns, everything any writer appended before is
  durable; when it raises, none of it was acknowledged and all of it is kept for the next try.
- Records of a trace are numbered 0, 1, 2, … without gaps, in the order they were appended. Each
  carries a CRC-32 of its trace, its number and its bytes, and the trace's own row carries their
  count, so a record that is damaged, missing or misplaced is an error and never a wrong answer.
- What is kept ahead of a trace (`Writer.keep`) is durable like its records, and is gone when the trace has ended.
- One process writes; any number read at the same time, each from a consistent snapshot.
- A store that was not closed and has fewer commits than were acknowledged is an error too (`witness`): SQLite takes
  a damaged write-ahead log for one that was cut short, and would give the store as it was before.

Do not open a store's file with anything but SQLite inside the process that writes it: closing a
POSIX file drops the locks SQLite holds on it. `is_store` knows this.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Self
from zlib import crc32

from baton.errors import UsageError
from baton.trace.formats.durable import Lock
from baton.trace.formats.sqlite.store_read import (
    OPEN_HERE,
    find_row,
    read_kept,
    read_rows,
    read_trace,
    reading,
)
from baton.trace.formats.sqlite.store_rows import (
    AHEAD,
    UPSERT_TRACE,
    TraceRow,
    encode,
    first_key,
    payload_digest,
    record_seed,
    store_crc,
)
from baton.trace.formats.sqlite.store_write import Durability, connect, transaction
from baton.trace.formats.sqlite.witness import ADD_COLUMN, Witness, num_commits
from baton.trace.records import Event, Payload
from baton.trace.trace import End, Header, Record, Trace

_COMMIT_EVERY = 10_000  # records, where the whole trace is already in memory


class Writer:
    """Appends to one trace. Nothing is durable before the store's next `commit`.

    As a context manager it ends the trace and commits; if its block raises, it commits and
    leaves the trace unfinished, so that it can be resumed.
    """

    def __init__(self, store: Store, row: TraceRow, num_kept: int = 0) -> None:
        self._store = store
        self._row = row
        self._first_key = first_key(row.number)
        self._seed = record_seed(row.trace_id)
        self.num_records = row.num_records
        self.num_events = row.num_events
        self._num_kept = num_kept
        self._ending: bytes | None = None

    @property
    def trace_id(self) -> str:
        return self._row.trace_id

    def append(self, record: Record) -> None:
        """Buffer one record. Safe from any thread."""
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Buffer records. All of them are accepted, or none."""
        bodies = [(type(record), encode(record)) for record in records]
        store, seed, key = self._store, self._seed, self._first_key
        with store._buffer_lock:
            self._check_open()
            n = self.num_records
            for kind, body in bodies:
                if kind is Payload:
                    digest = payload_digest(body)
                    store._payloads.append((digest, body))
                    store._links.append((key + n, digest))
                else:
                    # record_crc, written out: this runs for every record of every trace
                    store._records.append((key + n, crc32(body, (seed ^ n) & 0xFFFFFFFF), body))
                    if kind is Event:
                        self.num_events += 1
                n += 1
            self.num_records = n
            store._changed.add(self)

    def end(self, end: End | None = None) -> None:
        """The trace is complete; nothing can be appended any more."""
        body = encode(end or End())
        with self._store._buffer_lock:
            self._check_open()
            self._ending = body
            self._store._changed.add(self)

    def keep(self, body: bytes) -> None:
        """Buffer something that is not part of the trace yet and is needed to go on with it; it goes when it ends."""
        with self._store._buffer_lock:
            self._check_open()
            n = self._num_kept
            self._store._ahead.append((self._first_key + n, crc32(body, (self._seed ^ n) & 0xFFFFFFFF), body))
            self._num_kept += 1
            self._store._changed.add(self)

    def kept(self) -> list[bytes]:
        """What was kept before, in its order."""
        store = self._store
        with store._commit_lock, reading(store.path):
            return read_kept(store._connection, self._row)

    def mark(self) -> tuple[int, int]:
        """How far the trace has come, for `take_back`."""
        return self.num_records, self.num_events

    def take_back(self, mark: tuple[int, int]) -> None:
        """Drop what was appended since the mark, and an end, after a commit that failed."""
        store = self._store
        with store._buffer_lock:
            first, last = self._first_key + mark[0], self._first_key + self.num_records
            store._records = [record for record in store._records if not first <= record[0] < last]
            store._links = [link for link in store._links if not first <= link[0] < last]
            self.num_records, self.num_events = mark
            self._ending = None

    def _check_open(self) -> None:
        if self._ending is not None:
            raise UsageError(f"trace {self.trace_id!r} has ended; nothing can be appended to it.")
        if self._store._closed:
            raise UsageError(f"the store {self._store.path} is closed.")

    def _state(self) -> TraceRow:
        row = self._row
        return TraceRow(row.number, row.trace_id, row.header, self._ending, self.num_records, self.num_events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._ending is None:
            self.end()
        self._store.commit()


class Store:
    """A live store, open for writing. Open it with `Store.open`.

    Writers may append from any thread while another thread is inside `commit`.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: Lock) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._process = os.getpid()
        self._closed = False
        self._commit_lock = threading.Lock()
        self._buffer_lock = threading.Lock()
        self._records: list[tuple[int, int, bytes]] = []
        self._links: list[tuple[int, bytes]] = []
        self._payloads: list[tuple[bytes, bytes]] = []
        self._ahead: list[tuple[int, int, bytes]] = []
        self._changed: set[Writer] = set()
        self._witness = Witness(path)
        with reading(path):
            rows = read_rows(connection)
            self._num_commits = num_commits(connection)
            """None: the store does not count them yet."""
        self._numbers = {row.trace_id: row.number for row in rows}
        self._next_number = max(self._numbers.values(), default=0) + 1

    @classmethod
    def open(cls, path: str | Path, durability: Durability = "power") -> Store:
        """Open or make a store. Raises `UsageError` while another writer has it open."""
        path = Path(os.path.realpath(path))
        lock = Lock(
            path.with_name(path.name + "-lock"),
            f"{path} is open for writing elsewhere: one process at a time. Others can read it.",
        )
        try:
            connection = connect(path, durability)
            try:
                store = cls(path, connection, lock)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        OPEN_HERE.add(str(path))
        return store

    def begin(self, header: Header) -> Writer:
        """Start a new trace under this header."""
        row = TraceRow(self._next_number, header.trace_id, encode(header), None, 0, 0)
        with self._buffer_lock:
            if self._closed:
                raise UsageError(f"the store {self.path} is closed.")
            if header.trace_id in self._numbers:
                raise UsageError(
                    f"{self.path} already has a trace {header.trace_id!r}. "
                    f"Go on with it by store.writer({header.trace_id!r}), or choose another id."
                )
            self._next_number += 1
            self._numbers[header.trace_id] = row.number
            writer = Writer(self, row)
            self._changed.add(writer)
        return writer

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._numbers

    def add(self, trace: Trace) -> None:
        """A whole trace, durable with the next commit."""
        writer = self.begin(trace.header)
        writer.extend(chain.from_iterable(trace.by_kind().values()))
        if trace.finished:
            writer.end(End(costs=trace.costs, metrics=trace.metrics))

    def writer(self, trace_id: str) -> Writer:
        """Go on with an unfinished trace. `store.read(trace_id)` gives what is there."""
        with self._commit_lock, reading(self.path):
            row = find_row(self._connection, trace_id)
            num_kept = len(read_kept(self._connection, row))
        if row.ending is not None:
            raise UsageError(f"trace {trace_id!r} in {self.path} has ended; nothing can be appended to it.")
        return Writer(self, row, num_kept)

    def read(self, trace_id: str) -> Trace:
        """One trace of the store, as far as it is committed."""
        with self._commit_lock, reading(self.path):
            return read_trace(self._connection, find_row(self._connection, trace_id))

    def commit(self) -> None:
        """Make durable all that was appended before. Safe from any thread."""
        with self._commit_lock:
            if os.getpid() != self._process:
                raise UsageError(f"{self.path} was opened before a fork; open it again in the child.")
            with self._buffer_lock:
                if self._closed:
                    raise UsageError(f"the store {self.path} is closed.")
                if not self._changed:
                    return
                records, self._records = self._records, []
                links, self._links = self._links, []
                payloads, self._payloads = self._payloads, []
                ahead, self._ahead = self._ahead, []
                changed, self._changed = self._changed, set()
                rows = [writer._state().values() for writer in changed]
                num_traces = len(self._numbers)
            try:
                with transaction(self._connection, self.path) as run:
                    run.executemany("INSERT INTO records VALUES (?, ?, ?)", records)
                    run.executemany("INSERT OR IGNORE INTO payloads VALUES (?, ?)", payloads)
                    run.executemany("INSERT INTO links VALUES (?, ?)", links)
                    run.executemany(UPSERT_TRACE, rows)
                    self._count(run, num_traces)
                    _keep_ahead(run, ahead, [writer for writer in changed if writer._ending is not None])
            except BaseException:
                with self._buffer_lock:
                    self._records[:0] = records
                    self._links[:0] = links
                    self._payloads[:0] = payloads
                    self._ahead[:0] = ahead
                    self._changed |= changed
                raise
            self._acknowledge()

    def _count(self, run: sqlite3.Connection, num_traces: int) -> None:
        """Write how many traces there will be, and that this is one commit more."""
        if self._num_commits is None:
            run.execute(ADD_COLUMN)
        values = (num_traces, store_crc(num_traces), (self._num_commits or 0) + 1)
        run.execute("UPDATE store SET num_traces = ?, crc = ?, commits = ?", values)

    def _acknowledge(self) -> None:
        self._num_commits = (self._num_commits or 0) + 1
        self._witness.acknowledge(self._num_commits)

    def drop(self, trace_ids: Iterable[str]) -> None:
        """Remove finished traces, and payloads no other trace uses. Their room is used again."""
        with self._commit_lock:
            with reading(self.path):
                num_traces = len(read_rows(self._connection))
                rows = [find_row(self._connection, trace_id) for trace_id in dict.fromkeys(trace_ids)]
            if unfinished := [row.trace_id for row in rows if row.ending is None]:
                raise UsageError(
                    f"trace {unfinished[0]!r} in {self.path} is unfinished; only finished ones can go."
                )
            with transaction(self._connection, self.path) as run:
                for row in rows:
                    limits = (first_key(row.number), first_key(row.number + 1))
                    run.execute("DELETE FROM records WHERE key >= ? AND key < ?", limits)
                    run.execute("DELETE FROM links WHERE key >= ? AND key < ?", limits)
                    run.execute("DELETE FROM traces WHERE number = ?", (row.number,))
                run.execute("DELETE FROM payloads WHERE digest NOT IN (SELECT digest FROM links)")
                self._count(run, num_traces - len(rows))
            self._acknowledge()
            for row in rows:
                del self._numbers[row.trace_id]

    def check_writable(self) -> None:
        """Raises `BatonError` where the file cannot be written, which opening it does not tell."""
        with self._commit_lock, transaction(self._connection, self.path) as run:
            run.execute("UPDATE store SET crc = crc")

    def close(self) -> None:
        """Commit and let go of the file."""
        if self._closed:
            return
        try:
            self.commit()
        finally:
            self._closed = True
            self._connection.close()
            self._witness.close()
            OPEN_HERE.discard(str(self.path))
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _keep_ahead(
    run: sqlite3.Connection, ahead: Sequence[tuple[int, int, bytes]], ended: Sequence[Writer]
) -> None:
    """Write what is kept besides the traces; what was kept for those that have ended is no longer needed."""
    if ahead:
        run.execute(AHEAD)
        run.executemany("INSERT INTO ahead VALUES (?, ?, ?)", ahead)
    for writer in ended:
        if writer._num_kept:
            number = writer._row.number
            limits = (first_key(number), first_key(number + 1))
            run.execute("DELETE FROM ahead WHERE key >= ? AND key < ?", limits)


def write_store(traces: Iterable[Trace], path: str | Path, durability: Durability = "power") -> None:
    """Add whole traces to a store, made if it is not there."""
    with closing(Store.open(path, durability)) as store:
        for trace in traces:
            writer = store.begin(trace.header)
            records = chain.from_iterable(trace.by_kind().values())
            while batch := tuple(islice(records, _COMMIT_EVERY)):
                writer.extend(batch)
                store.commit()
            if trace.finished:
                writer.end(End(costs=trace.costs, metrics=trace.metrics))
            store.commit()
