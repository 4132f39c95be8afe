"""Records to columns and back, for sealed traces. The columns are in `shard_schema`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from baton.errors import TraceError
from baton.trace.formats.parquet.shard_schema import COLUMNS, PayloadLine, TraceLine, arrow, arrow_schema
from baton.trace.records import Call, Charge, Credit, Edge, Event, Floats, Ints, Reward, Sampling, VersionSpan
from baton.trace.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa


_STRUCTS: dict[str, type[Struct]] = {
    "traces": TraceLine,
    "events": Event,
    "edges": Edge,
    "calls": Call,
    "rewards": Reward,
    "credits": Credit,
    "charges": Charge,
}
_FIELD_NAMES = {"from": "from_"}  # where a column is no Python name


def _pack_json(value: dict[str, Any]) -> str | None:
    """None when empty. Raises on what JSON would silently change, such as NaN."""
    if not value:
        return None
    text = msgspec.json.encode(value)
    if msgspec.json.decode(text) != _lists(msgspec.to_builtins(value, str_keys=True)):
        raise ValueError(f"JSON cannot hold {value!r}")
    return text.decode()


def _lists(value: Any) -> Any:
    """Tuples as JSON has them."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _pack_span(value: tuple[int, int]) -> dict[str, int]:
    return {"start": value[0], "stop": value[1]}


_PACK: dict[str, Callable[[Any], Any]] = {
    "json": _pack_json,
    "span": _pack_span,
    "sampling": msgspec.structs.asdict,
    "versions": msgspec.to_builtins,
    "int32s": Ints.numpy,
    "float64s": Floats.numpy,
}


def _plain(column: Any) -> list[Any]:
    return list(column.to_pylist())


def _words(column: Any) -> list[str | None]:
    words = column.dictionary
    if len(words) > len(column):  # a slice of a large table: decode only what it uses
        column = column.dictionary_decode().dictionary_encode()
        words = column.dictionary
    shared = [*words.to_pylist(), None]
    return [shared[index] for index in column.indices.fill_null(len(words)).to_pylist()]


def _tuples(column: Any) -> list[tuple[Any, ...] | None]:
    return [None if value is None else tuple(value) for value in column.to_pylist()]


def _objects(column: Any) -> list[dict[str, Any]]:
    return [{} if value is None else msgspec.json.decode(value) for value in column.to_pylist()]


def _spans(column: Any) -> list[tuple[int, int] | None]:
    return [None if value is None else (value["start"], value["stop"]) for value in column.to_pylist()]


def _samplings(column: Any) -> list[Sampling | None]:
    return [
        None if value is None else Sampling(**{**value, "stop": tuple(value["stop"])})
        for value in column.to_pylist()
    ]


def _versions(column: Any) -> list[tuple[VersionSpan, ...] | None]:
    return [
        None if value is None else tuple(VersionSpan(**each) for each in value)
        for value in column.to_pylist()
    ]


def _numbers(kind: type[Ints] | type[Floats]) -> Callable[[Any], list[Any]]:
    def unpack(column: Any) -> list[Any]:
        values = column.values.to_numpy()
        ends = column.offsets.to_pylist()
        present = column.is_valid().to_pylist()
        return [
            kind.from_buffer(values[start:stop].tobytes()) if there else None
            for start, stop, there in zip(ends, ends[1:], present, strict=False)
        ]

    return unpack


_UNPACK: dict[str, Callable[[Any], list[Any]]] = {
    "word": _words,
    "strings": _tuples,
    "floats": _tuples,
    "json": _objects,
    "span": _spans,
    "sampling": _samplings,
    "versions": _versions,
    "int32s": _numbers(Ints),
    "float64s": _numbers(Floats),
}


def records_by_kind(trace: Trace) -> dict[str, Collection[Any]]:
    """The rows a trace adds to each table."""
    records = {f"{kind}s": records for kind, records in trace.by_kind().items()}
    counts: dict[str, Any] = {f"num_{kind}": len(rows) for kind, rows in records.items()}
    line = TraceLine(
        **msgspec.structs.asdict(trace.header),
        finished=trace.finished,
        costs=trace.costs,
        metrics=trace.metrics,
        **counts,
    )
    return {"traces": [line], **records, "events": sorted(trace.events, key=attrgetter("seq"))}


def to_arrow(kind: str, rows: Sequence[tuple[str, Any]]) -> pa.Table:
    """A table of (trace id, record) rows."""
    pa = arrow()
    columns = []
    records = [record for _, record in rows]
    if kind == "payloads":
        records = [PayloadLine.of(payload) for payload in records]
    for column in arrow_schema(kind):
        type_ = COLUMNS[kind][column.name]
        if column.name == "trace_id":
            values: list[Any] = [trace_id for trace_id, _ in rows]
        else:
            name = _FIELD_NAMES.get(column.name, column.name)
            values = [getattr(record, name) for record in records]
        try:
            if type_ in _PACK:
                pack = _PACK[type_]
                values = [None if value is None else pack(value) for value in values]
            columns.append(pa.array(values, column.type))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise TraceError(f"{kind} cannot be sealed: column {column.name}: {error}.") from None
    return pa.table(columns, schema=arrow_schema(kind))


def from_arrow(kind: str, table: pa.Table) -> list[Any]:
    """The records of a table, without their trace ids."""
    names, columns = [], []
    for name, type_ in COLUMNS[kind].items():
        if (name == "trace_id" and kind != "traces") or name not in table.column_names:
            continue  # not a field, or younger than the shard
        column = table.column(name)
        if column.null_count == len(column):
            continue  # at its default throughout
        names.append(_FIELD_NAMES.get(name, name))
        columns.append(_UNPACK.get(type_, _plain)(column.combine_chunks()))
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    if kind == "payloads":
        return [PayloadLine(**row).payload() for row in rows]
    make = _STRUCTS[kind]
    return [make(**row) for row in rows]
