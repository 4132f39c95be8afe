"""The rows of a live store: its tables, and how a record becomes checked bytes and back.

A record is one MessagePack body. Its CRC-32 is seeded with its trace and its number, so a body
that is whole but in the wrong place does not pass either.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct

from baton.errors import CorruptError, TraceError
from baton.trace.records import Call, Charge, Credit, Edge, Event, Floats, Ints, Payload, Reward
from baton.trace.trace import End, Header

APPLICATION_ID = 0x6261746E  # "batn"
SCHEMA_VERSION = 1
_RECORD_BITS = 40  # 2^40 records in each of 2^23 traces


def store_crc(num_traces: int) -> int:
    return crc32(b"store %d" % num_traces)


# One integer key per record keeps a trace's records together and appends at the end of a B-tree:
# the fastest insert SQLite has. A payload is stored once, under the digest of its bytes; a link
# is a record that names it. The counts make a lost row visible.
SCHEMA = f"""
CREATE TABLE store(
  id INTEGER PRIMARY KEY CHECK (id = 1), num_traces INTEGER NOT NULL, crc INTEGER NOT NULL,
  commits INTEGER NOT NULL DEFAULT 0);
CREATE TABLE traces(
  number INTEGER PRIMARY KEY, trace_id TEXT NOT NULL UNIQUE, header BLOB NOT NULL, ending BLOB,
  num_records INTEGER NOT NULL, num_events INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE records(key INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE links(key INTEGER PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE payloads(digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
INSERT INTO store VALUES (1, 0, {store_crc(0)}, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
# Made when it is first needed: stores of 0.1 and 0.2 have none, and those versions do not mind it.
AHEAD = "CREATE TABLE IF NOT EXISTS ahead(key INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)"
SELECT_TRACES = "SELECT number, trace_id, header, ending, num_records, num_events, crc FROM traces"
UPSERT_TRACE = """
INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET
  ending = excluded.ending, num_records = excluded.num_records,
  num_events = excluded.num_events, crc = excluded.crc
"""


def first_key(number: int) -> int:
    """Key of record 0 of a trace; `first_key(number + 1)` is past its last."""
    return number << _RECORD_BITS


def record_seed(trace_id: str) -> int:
    return crc32(trace_id.encode())


def record_crc(seed: int, n: int, body: bytes) -> int:
    """For one body any two (trace, number) pairs with different seed ^ n give different sums."""
    return crc32(body, (seed ^ n) & 0xFFFFFFFF)


def payload_digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


class TraceRow(Struct, frozen=True, array_like=True):
    """A row of `traces` without its checksum."""

    number: int
    trace_id: str
    header: bytes
    ending: bytes | None
    num_records: int
    num_events: int

    def values(self) -> tuple[Any, ...]:
        """The row's values in the order that `UPSERT_TRACE` takes them."""
        return (*msgspec.structs.astuple(self), crc32(_pack(self)))

    @classmethod
    def checked(cls, columns: tuple[Any, ...]) -> TraceRow:
        """The row that `SELECT_TRACES` found, after its checksum was compared."""
        row = cls(*columns[:-1])
        try:
            whole = crc32(_pack(row)) == columns[-1]
        except (TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            raise CorruptError(
                f"the row of trace {row.trace_id!r} (number {row.number!r}) fails its checksum"
            )
        return row

    def read_header(self) -> Header:
        return _HEADER.decode(self.header)

    def read_end(self) -> End | None:
        return None if self.ending is None else _END.decode(self.ending)


def _to_bytes(value: Any) -> bytes:
    """Arrays of numbers travel as little-endian bytes: a tenth of the time of a list."""
    if isinstance(value, Ints | Floats):
        return value.tobytes() if sys.byteorder == "little" else value.numpy().byteswap().tobytes()
    raise TypeError(f"cannot store {type(value).__name__} in a trace")


def _from_bytes(kind: type, value: Any) -> Any:
    if kind is not Ints and kind is not Floats:
        raise TypeError(f"cannot read {kind.__name__} from a trace")
    if type(value) is not bytes:
        raise TypeError("Expected bytes")
    array = kind.from_buffer(value)
    return array if sys.byteorder == "little" else kind.from_buffer(array.numpy().byteswap())


_pack = msgspec.msgpack.Encoder(enc_hook=_to_bytes).encode


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Reads back what `encode` wrote, of a type that may hold arrays of numbers."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_from_bytes)


_Stored = Event | Edge | Call | Reward | Credit | Charge  # payloads have a table of their own
_RECORD: msgspec.msgpack.Decoder[_Stored] = msgspec.msgpack.Decoder(_Stored, dec_hook=_from_bytes)
_PAYLOAD = msgspec.msgpack.Decoder(Payload)
_HEADER = msgspec.msgpack.Decoder(Header)
_END = msgspec.msgpack.Decoder(End)


def encode(record: Struct) -> bytes:
    """A record as bytes. Raises `TraceError` for what cannot be stored."""
    try:
        return _pack(record)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # includes UnicodeEncodeError
        name = getattr(record, "id", None)
        what = type(record).__name__.lower() + (f" {name!r}" if name is not None else "")
        raise TraceError(f"{what} cannot be stored: {error}.") from None


def decode_record(body: bytes) -> _Stored:
    return _RECORD.decode(body)


def decode_payload(digest: bytes, body: Any) -> Payload:
    if type(body) is not bytes or payload_digest(body) != digest:
        raise CorruptError(f"payload {digest!r} is missing or fails its checksum")
    return _PAYLOAD.decode(body)
