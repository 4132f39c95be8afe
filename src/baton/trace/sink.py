"""Where a recorder's records go: memory, a JSON Lines file, or a live store."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from baton.errors import UsageError
from baton.trace.formats.jsonl import read_jsonl
from baton.trace.formats.jsonl_writer import JsonlWriter
from baton.trace.formats.recognition import detect
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.records import Call, Charge, Credit, Edge, Event, Payload, Reward
from baton.trace.trace import End, Header, Record, Trace


class Sink(Protocol):
    """Records given in one call are written together, and are safe when it returns."""

    def write(self, records: Sequence[Record]) -> None: ...
    def end(self, *, costs: dict[str, float], metrics: dict[str, float]) -> None: ...
    def close(self) -> None: ...
    def trace(self) -> Trace:
        """What was written so far."""
        ...


class _Memory:
    def __init__(self, header: Header) -> None:
        self._header = header
        self._records: dict[type, list[Record]] = {
            kind: [] for kind in (Event, Edge, Call, Payload, Reward, Credit, Charge)
        }
        self._end: End | None = None

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            self._records[type(record)].append(record)

    def end(self, *, costs: dict[str, float], metrics: dict[str, float]) -> None:
        self._end = End(costs=costs, metrics=metrics)

    def close(self) -> None:
        pass

    def trace(self) -> Trace:
        return Trace.gathered(self._header, self._records, self._end)


class _Jsonl:
    def __init__(self, path: Path, header: Header) -> None:
        self._path = path.resolve()
        if self._path.exists() and self._path.stat().st_size and detect(self._path) != "jsonl":
            raise UsageError(f"{path} is no JSON Lines file: nothing is added to it. Choose another name.")
        self._trace_id = header.trace_id
        self._writer = JsonlWriter(self._path, header)

    def write(self, records: Sequence[Record]) -> None:
        self._writer.write(*records)

    def end(self, *, costs: dict[str, float], metrics: dict[str, float]) -> None:
        self._writer.end(costs=costs, metrics=metrics)

    def close(self) -> None:
        self._writer.close()

    def trace(self) -> Trace:
        # The latest of that name: nothing keeps a file from holding two.
        same_name = (trace for trace in read_jsonl(self._path) if trace.trace_id == self._trace_id)
        return deque(same_name, maxlen=1)[0]


class _Stored:
    def __init__(self, store: Store, header: Header, *, own: bool) -> None:
        self._store = store
        self._own = own
        self._writer = store.begin(header)
        store.commit()

    def write(self, records: Sequence[Record]) -> None:
        self._commit(lambda: self._writer.extend(records))

    def end(self, *, costs: dict[str, float], metrics: dict[str, float]) -> None:
        self._commit(lambda: self._writer.end(End(costs=costs, metrics=metrics)))

    def _commit(self, append: Callable[[], None]) -> None:
        """What a recorder was refused is not kept for a later try: its next event has the same name."""
        before = self._writer.mark()
        append()
        try:
            self._store.commit()
        except BaseException:
            self._writer.take_back(before)
            raise

    def close(self) -> None:
        if self._own:
            self._store.close()

    def trace(self) -> Trace:
        return next(read_store(self._store.path, [self._writer.trace_id]))


def open_sink(path: str | os.PathLike[str] | Store | None, header: Header) -> Sink:
    if path is None:
        return _Memory(header)
    if isinstance(path, Store):
        return _Stored(path, header, own=False)
    where = Path(path)
    if where.suffix == ".jsonl":
        return _Jsonl(where, header)
    if where.suffix == ".db":
        return _Stored(Store.open(where, "process"), header, own=True)
    raise UsageError(f"a recorder writes .jsonl or .db files; {str(path)!r} is neither.")
