"""From a live store to sealed shards.

Invariant: whenever the process dies, every trace is in the store, in a whole shard, or in both,
and sealing again ends with it sealed once: what is already sealed is compared, not written again,
and only then dropped from the store.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from baton.errors import BatonError, UsageError
from baton.trace.formats.parquet.manifest import has_shards, verify_shard
from baton.trace.formats.parquet.shard_read import read_sealed, sealed_ids
from baton.trace.formats.parquet.shard_write import seal
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import list_traces, read_store


class SealReport(Struct, frozen=True, kw_only=True):
    """How many traces `seal_store` sealed, found sealed, and left."""

    shard: Path | None
    """The new shard; None when there was nothing new to seal."""
    num_sealed: int
    num_already_sealed: int
    """Finished traces an earlier seal had written and not dropped, for example because it was killed."""
    num_left: int
    """Traces that are still in the store."""


def seal_store(
    path: str | Path, directory: str | Path, *, keep: bool = False, unfinished: bool = False
) -> SealReport:
    """Seal a store's finished traces into a new shard and drop them from the store.

    `keep` leaves the store as it is, so that it works beside a live writer. `unfinished` seals
    the unfinished traces too; those stay in the store.
    """
    summaries = list_traces(path)  # before the store is opened for writing: it must be there
    with nullcontext() if keep else Store.open(path) as store:
        if store is not None:
            _check_writable(store)
            summaries = list_traces(path)
        wanted = sorted(each.trace_id for each in summaries if each.finished or unfinished)
        before = _already_sealed(path, directory, wanted)
        new = [trace_id for trace_id in wanted if trace_id not in before]
        shard = seal(read_store(path, new), directory) if new else None
        if shard is not None:
            verify_shard(shard)
        num_left = len(summaries)
        if store is not None:
            done = [each.trace_id for each in summaries if each.finished]
            store.drop(done)
            num_left -= len(done)
    return SealReport(shard=shard, num_sealed=len(new), num_already_sealed=len(before), num_left=num_left)


def _check_writable(store: Store) -> None:
    """Before anything is sealed: what cannot leave the store would be in both places for good."""
    try:
        store.check_writable()
    except BatonError:
        raise UsageError(
            f"{store.path} cannot be written, so that sealed traces cannot leave it. Add --keep: they stay there, too."
        ) from None


def _already_sealed(path: str | Path, directory: str | Path, wanted: list[str]) -> set[str]:
    """Those of `wanted` that are sealed in `directory`, each compared with the store's."""
    if not has_shards(directory):
        return set()
    sealed = set(sealed_ids(directory)) & set(wanted)
    for trace in read_sealed(directory, sealed) if sealed else ():
        (live,) = read_store(path, [trace.trace_id])
        if live != trace:
            raise UsageError(
                f"trace {trace.trace_id!r} is sealed in {directory} with other content than in {path}. "
                "Seal into another directory."
            )
    return sealed
