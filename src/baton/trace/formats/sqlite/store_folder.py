"""Live stores, and the shards that were sealed beside them.

Invariant: a trace is given once, wherever it is. Stores are read before shards: sealing writes a shard before it
drops anything, so whoever reads in this order misses nothing that is being sealed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from baton.errors import UsageError
from baton.trace.formats.parquet.manifest import has_shards
from baton.trace.formats.recognition import stores_in
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.trace import Trace


def read_stores(place: Path) -> Iterator[Trace]:
    """The traces of a store; of a folder, those of all its stores by name, then what is sealed in it alone."""
    if not place.is_dir():
        yield from read_store(place)
        return
    live: dict[str, Path] = {}
    for store in stores_in(place):
        for trace in read_store(store):
            live[trace.trace_id] = store
            yield trace
    if has_shards(place):
        from baton.trace.formats.parquet.shard_read import read_sealed

        for trace in read_sealed(place):
            if trace.trace_id not in live or _is_another(trace, live[trace.trace_id]):
                yield trace


def _is_another(sealed: Trace, store: Path) -> bool:
    """Whether a sealed trace only has its name in common with the store's. One sealed unfinished went on there."""
    if not sealed.finished:
        return False
    try:
        (live,) = read_store(store, [sealed.trace_id])
    except UsageError:  # it was there, and has been sealed just now
        return False
    return live != sealed
