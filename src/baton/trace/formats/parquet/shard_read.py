"""Reading sealed traces: trace by trace, a block of rows in memory at a time.

Files are checked against the manifest first, unless told otherwise; then counts must add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from msgspec import structs

from baton.errors import CorruptError, UsageError, nearest
from baton.trace.formats.decoding import no_collection, share_strings
from baton.trace.formats.parquet.manifest import read_manifest, shards, verify_shard
from baton.trace.formats.parquet.shard_columns import from_arrow
from baton.trace.formats.parquet.shard_schema import KINDS, YOUNGEST, TraceLine, arrow, word_columns
from baton.trace.trace import Header, Trace

_BLOCK_ROWS = 4096
_RECORD_KINDS = KINDS[1:]


def verify_sealed(directory: str | Path) -> None:
    """Every byte of every shard is as it was sealed, or `CorruptError` names the file."""
    for shard in shards(directory):
        verify_shard(shard)


def sealed_ids(directory: str | Path) -> list[str]:
    """Ids of the sealed traces, in shard order. Reads one column."""
    parquet = arrow().parquet
    found: list[str] = []
    for shard in shards(directory):
        read_manifest(shard)
        path = shard / "traces.parquet"
        with _reading(path):
            found += parquet.read_table(path, columns=["trace_id"]).column(0).to_pylist()
    return found


def read_sealed(
    directory: str | Path, trace_ids: Iterable[str] | None = None, verify: bool = True
) -> Iterator[Trace]:
    """All traces of the shards in a directory, or those named; in the order they were sealed."""
    arrow()
    wanted = None if trace_ids is None else set(trace_ids)
    if wanted is not None and (unknown := wanted - set(known := sealed_ids(directory))):
        name = min(unknown)
        hint = nearest(name, known) if len(known) <= 200 else f"{len(known):,} are."
        raise UsageError(f"trace {name!r} is not sealed in {directory}. {hint}")
    for shard in shards(directory):
        rows = {
            name: entry.rows
            for name, entry in (verify_shard(shard) if verify else read_manifest(shard)).files.items()
        }
        with ExitStack() as stack:
            tables = {
                kind: stack.enter_context(_Rows(shard, kind, rows.get(f"{kind}.parquet"))) for kind in KINDS
            }
            yield from _traces(tables, wanted)


def _traces(tables: dict[str, _Rows], wanted: set[str] | None) -> Iterator[Trace]:
    starts = dict.fromkeys(_RECORD_KINDS, 0)
    for index in range(tables["traces"].num_rows):
        line: TraceLine = tables["traces"].take(index, 1)[0]
        counts = {kind: getattr(line, f"num_{kind}") for kind in _RECORD_KINDS}
        if wanted is None or line.trace_id in wanted:
            with no_collection():
                trace = _trace(line, {kind: tables[kind].take(starts[kind], counts[kind]) for kind in counts})
            yield trace
        for kind in _RECORD_KINDS:
            starts[kind] += counts[kind]
    for kind, start in starts.items():
        if start != tables[kind].num_rows:
            raise CorruptError(
                f"{tables[kind].path} has {tables[kind].num_rows:,} rows; traces name {start:,}."
            )


def _trace(line: TraceLine, records: dict[str, list[Any]]) -> Trace:
    pool: dict[str, str] = {}
    for kind in _RECORD_KINDS:
        share_strings(records[kind], pool)
    fields = structs.asdict(line)
    lists: dict[str, Any] = {kind: tuple(records[kind]) for kind in _RECORD_KINDS if kind != "payloads"}
    return Trace(
        header=Header(**{name: fields[name] for name in Header.__struct_fields__}),
        payloads={payload.ref: payload for payload in records["payloads"]},
        costs=line.costs,
        metrics=line.metrics,
        finished=line.finished,
        **lists,
    )


class _Rows:
    """The rows of one table by number. Keeps the last row group read, and the last block decoded."""

    def __init__(self, shard: Path, kind: str, num_rows: int | None) -> None:
        """`num_rows` by the manifest; None: the shard was sealed before there were such records."""
        self.kind = kind
        self.path = shard / f"{kind}.parquet"
        self.num_rows = num_rows or 0
        self._there = num_rows is not None or kind != YOUNGEST
        self._group = -1
        self._block: list[Any] = []
        self._block_start = 0

    def __enter__(self) -> Self:
        if not self._there:
            return self
        with _reading(self.path):
            parquet = arrow().parquet
            there = set(parquet.read_schema(self.path).names)
            words = [
                name for name in word_columns(self.kind) if name in there
            ]  # some are younger than the shard
            self._file = parquet.ParquetFile(self.path, read_dictionary=words)
            meta = self._file.metadata
            sizes = [meta.row_group(index).num_rows for index in range(meta.num_row_groups)]
        self._starts = list(accumulate(sizes, initial=0))
        if self._starts[-1] != self.num_rows:
            self._file.close()
            raise CorruptError(
                f"{self.path} has {self._starts[-1]:,} rows; its manifest says {self.num_rows:,}."
            )
        return self

    def take(self, start: int, count: int) -> list[Any]:
        if start + count > self.num_rows:
            raise CorruptError(f"{self.path} has {self.num_rows:,} rows; traces name {start + count:,}.")
        found: list[Any] = []
        while count:
            offset = start - self._block_start
            if not 0 <= offset < len(self._block):
                self._load(start)
                offset = start - self._block_start
            part = self._block[offset : offset + count]
            found += part
            start += len(part)
            count -= len(part)
        return found

    def _load(self, row: int) -> None:
        group = bisect_right(self._starts, row) - 1
        with _reading(self.path):
            if group != self._group:
                self._table = self._file.read_row_group(group)
                self._group = group
            within = (row - self._starts[group]) // _BLOCK_ROWS * _BLOCK_ROWS
            self._block = from_arrow(self.kind, self._table.slice(within, _BLOCK_ROWS))
        self._block_start = self._starts[group] + within

    def __exit__(self, *_: object) -> None:
        if self._there:
            self._file.close()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever pyarrow cannot read was not written by `seal`."""
    pa = arrow()
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{path} cannot be read as sealed traces: {error}.") from None
