"""Shape: are the records, taken one by one, of the right types and within their ranges?"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import MsgspecError, Struct, msgpack, structs

from baton.trace.formats.decoding import no_collection
from baton.trace.records import Event, decode_hook, encode_hook
from baton.trace.trace import End, Header
from baton.trace.validation.fields import field_faults
from baton.trace.validation.parts import KINDS, Parts, label
from baton.trace.validation.problem import Found
from baton.trace.validation.ranges import Fault, faults_in, fields_at_fault, ruled_fields

_BATCH = 10_000  # whole columns, but few enough to stay in the processor's cache
# Without these an event cannot be placed in the graph, so it does not go on to the next level.
_PLACING = ("id", "seq")


def check_ranges(parts: Parts) -> None:
    """Report well-typed values that no trace can hold; set aside events that cannot be placed."""
    for record, line in ((parts.header, parts.header_line), (parts.end, parts.end_line)):
        if record is not None:
            _check_one(record, line, parts.found)
    for kind, name in KINDS.items():
        records = [] if name in parts.in_range else parts.of(name)
        unplaced: set[int] = set()
        for start in range(0, len(records), _BATCH):
            batch = records[start : start + _BATCH]
            for field in fields_at_fault(kind, batch):
                bad = _report_column(parts, kind, field, start, batch)
                if kind is Event and field in _PLACING:
                    unplaced.update(bad)
        if unplaced:
            parts.set_aside(name, unplaced)


def _check_one(record: Header | End, line: int | None, found: Found) -> None:
    kind = type(record)
    for field in fields_at_fault(kind, [record]):
        if fault := faults_in(kind, field, getattr(record, field)):
            code, was, expected = fault
            name = "trace" if kind is Header else "end"
            found.add(code, name, was, expected, position=line, field=field)


def _report_column(
    parts: Parts, kind: type[Struct], field: str, start: int, batch: Sequence[Any]
) -> list[int]:
    bad = []
    for index, record in enumerate(batch, start):
        if fault := faults_in(kind, field, getattr(record, field)):
            code, was, expected = fault
            parts.report(code, KINDS[kind], index, field, was, expected)
            bad.append(index)
    return bad


def check_types(parts: Parts) -> None:
    """For records made in memory, which nothing has checked: report and set aside the mistyped ones.

    Python lets any value into a struct's field; decoding does not. So they are encoded and decoded,
    batch by batch, and only a batch that fails is looked at record by record.
    """
    with no_collection():
        for kind, name in KINDS.items():
            bad = _mistyped(parts, kind)
            if bad:
                parts.set_aside(name, bad)


def _mistyped(parts: Parts, kind: type[Struct]) -> set[int]:
    """Indexes of the records of a kind that do not decode, once they are reported."""
    records = parts.of(KINDS[kind])
    encode = _coding(kind)[0]
    decode = msgpack.Decoder(list[kind], dec_hook=decode_hook).decode  # type: ignore[valid-type]  # a class, at run time
    bad: set[int] = set()
    for start in range(0, len(records), _BATCH):
        batch = list(records[start : start + _BATCH])
        if not _decodes(encode, decode, batch):
            for index, record in enumerate(batch, start):
                if not _decodes(encode, decode, [record]):
                    _report_record(parts, kind, index, record)
                    bad.add(index)
    return bad


def _decodes(encode: Any, decode: Any, what: Any) -> bool:
    try:
        decode(encode(what))
    except (MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def first_fault(record: Struct) -> tuple[str | None, Fault] | None:
    """The first thing wrong with one record made in memory, and its field where one is to blame."""
    kind = type(record)
    encode, decode = _coding(kind)
    if not _decodes(encode, decode, record):
        for named_fault in field_faults(kind, fields_given(record)):
            return named_fault
        return None, ("shape/not-json", "a value that JSON cannot hold", "a valid record")
    for field in ruled_fields(kind):
        if fault := faults_in(kind, field, getattr(record, field)):
            return field, fault
    return None


@functools.cache
def _coding(kind: type[Struct]) -> tuple[Any, Any]:
    encoder, decoder = msgpack.Encoder(enc_hook=encode_hook), msgpack.Decoder(kind, dec_hook=decode_hook)
    return encoder.encode, decoder.decode


def fields_given(record: Struct) -> dict[str, Any]:
    """A record's values under the names they have in a file."""
    return {info.encode_name: getattr(record, info.name) for info in structs.fields(record)}


def _report_record(parts: Parts, kind: type[Struct], index: int, record: Any) -> None:
    name = KINDS[kind]
    place = parts.place(name, index)
    if not isinstance(record, kind):
        was, expected = type(record).__name__, f"a {kind.__name__}"
        parts.found.add("shape/unknown-kind", name, was, expected, position=place)
        return
    given = fields_given(record)
    event_id = given.get("id") if kind is Event and isinstance(given.get("id"), str) else None
    report_fields(parts.found, kind, given, record=label(name, record), event_id=event_id, position=place)


def report_fields(
    found: Found,
    kind: type[Struct],
    given: Mapping[str, Any],
    *,
    record: str,
    event_id: str | None,
    position: int | None,
    error: str = "a value that JSON cannot hold",
    ranges_of: type[Struct] | None = None,
    closed: bool = True,
) -> None:
    """Report everything wrong with a record that does not decode; `error` if that is nothing we know."""
    num_hints = 0 if found.is_full("shape/unknown-field") else 20
    faults: Iterable[tuple[str | None, Fault]] = field_faults(
        kind, given, ranges_of=ranges_of, closed=closed, num_hints=num_hints
    )
    for field, (code, was, expected) in faults or [(None, ("shape/not-json", error, "a valid record"))]:
        found.add(code, record, was, expected, event_id=event_id, position=position, field=field)
