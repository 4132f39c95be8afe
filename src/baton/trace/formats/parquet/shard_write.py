"""Sealed traces: finished ones as Parquet shards, for analysis with anything that reads Parquet.

A shard is a directory with one file per record kind and a manifest. Rows are in the order traces
were given, each trace's rows together, its events by `seq`. The traces table says how many rows
of each other table are a trace's own, so a reader goes straight to them.
Invariant: a shard is whole or not there. It is written beside its place, synced, then renamed;
what a killed seal leaves behind is hidden and swept by the next one.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from baton.errors import BatonError, UsageError
from baton.trace.formats.durable import Lock, sync_directory, sync_file
from baton.trace.formats.parquet.manifest import MANIFEST, FileEntry, Manifest, has_shards
from baton.trace.formats.parquet.shard_columns import records_by_kind, to_arrow
from baton.trace.formats.parquet.shard_read import sealed_ids
from baton.trace.formats.parquet.shard_schema import KINDS, arrow, arrow_schema, repeating_columns
from baton.trace.trace import Trace

_GROUP_ROWS = 1 << 16  # one trace is found by reading one group; a scan has few enough of them
_GROUP_BYTES = 32 << 20  # of tokens or content, where rows are large
_PREFIX = ".sealing-"


def seal(traces: Iterable[Trace], directory: str | Path) -> Path:
    """Write traces as one new shard in `directory`, and give the shard's path.

    Memory holds one trace and the row groups under way. Raises `UsageError`, and leaves no shard,
    if there is no trace or one of them is already sealed there.
    """
    arrow()
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; sealed traces go into a folder. Give another.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = _make(folder)
    lock = Lock(folder / ".lock", f"another process is sealing into {folder}. Try again when it has ended.")
    try:
        for stale in folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(stale)
        taken = set(sealed_ids(folder)) if has_shards(folder) else set()
        working = folder / f"{_PREFIX}{secrets.token_hex(8)}"
        working.mkdir()
        try:
            return _seal_into(working, traces, taken)
        except OSError as error:
            raise BatonError(f"cannot seal into {folder}: {error}. No shard was made.") from None
        finally:
            shutil.rmtree(working, ignore_errors=True)
    except BaseException:
        if made and all(path.name.startswith(".lock") for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)  # the lock is still ours
        raise
    finally:
        lock.release()


def _make(folder: Path) -> bool:
    """Whether it was not there."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _seal_into(working: Path, traces: Iterable[Trace], taken: set[str]) -> Path:
    folder = working.parent
    with ExitStack() as stack:
        tables = {kind: stack.enter_context(_Table(working, kind)) for kind in KINDS}
        for trace in traces:
            if trace.trace_id in taken:
                raise UsageError(f"trace {trace.trace_id!r} is already sealed in {folder}.")
            taken.add(trace.trace_id)
            for kind, records in records_by_kind(trace).items():
                tables[kind].add(trace.trace_id, records)
    if tables["traces"].rows == 0:
        raise UsageError(f"there is no trace to seal into {folder}.")
    manifest = Manifest(
        files={table.path.name: FileEntry.of(table.path, table.rows) for table in tables.values()}
    )
    (working / MANIFEST).write_bytes(manifest.render())
    for path in working.iterdir():
        sync_file(path)
    sync_directory(working)
    shard = folder / manifest.shard_name
    working.rename(shard)
    sync_directory(folder)
    return shard


class _Table:
    """One Parquet file under way: rows gather until they make a row group."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.path = folder / f"{kind}.parquet"
        self.rows = 0
        self._pending: list[tuple[str, Any]] = []
        self._pending_bytes = 0

    def __enter__(self) -> Self:
        self._writer = arrow().parquet.ParquetWriter(
            self.path,
            arrow_schema(self.kind),
            compression="zstd",
            use_dictionary=repeating_columns(self.kind),
            dictionary_pagesize_limit=8 << 20,  # content that traces share is kept once per row group
        )
        return self

    def add(self, trace_id: str, records: Iterable[Any]) -> None:
        for record in records:
            self._pending.append((trace_id, record))
            if self.kind == "calls":
                self._pending_bytes += 4 * len(record.prompt_ids or ()) + 12 * len(
                    record.completion_ids or ()
                )
            elif self.kind == "payloads":
                self._pending_bytes += record.size
            if len(self._pending) >= _GROUP_ROWS or self._pending_bytes >= _GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        self._writer.write_table(to_arrow(self.kind, self._pending), row_group_size=_GROUP_ROWS)
        self.rows += len(self._pending)
        self._pending, self._pending_bytes = [], 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._pending:
                self._flush()
        finally:
            self._writer.close()
