"""The columns of sealed traces: one Parquet table per record kind, one column per field.

Column names are the field names of the JSON form. Token ids are list<int32>, log-probabilities
list<double>, `span` and `sampling` structs; `extra`, `meta`, `costs` and `metrics` are JSON text,
because their keys are open. A payload's content is in `text` where it is text and in `data`
where it is not; both are null where it is withheld.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from baton.errors import CorruptError, MissingExtraError
from baton.trace.records import Payload
from baton.trace.vocabulary import Topology

if TYPE_CHECKING:
    import pyarrow as pa


class TraceLine(Struct, frozen=True, kw_only=True):
    """A row of the traces table: header, end, and how many rows of each other table are its own."""

    trace_id: str
    task_id: str
    system: str | None = None
    topology: Topology
    version: int
    finished: bool
    num_events: int
    num_edges: int
    num_calls: int
    num_payloads: int
    num_rewards: int
    num_credits: int
    num_charges: int = 0
    """Shards of 0.2 have no table of them."""
    meta: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class PayloadLine(Struct, frozen=True, kw_only=True):
    """A row of the payloads table. Its content is readable: in `text`, uncompressed, where it is text."""

    ref: str
    size: int
    media_type: str
    codec: str
    text: str | None = None
    data: bytes | None = None

    @classmethod
    def of(cls, payload: Payload) -> PayloadLine:
        text, data = None, payload.data
        try:
            content = payload.content()
            said = None if content is None else content.decode()
            if said is not None and Payload.of(said, payload.media_type) == payload:
                text, data = said, None
        except (CorruptError, UnicodeDecodeError):
            pass  # not text, or not what its address says: kept byte for byte
        return cls(
            ref=payload.ref,
            size=payload.size,
            media_type=payload.media_type,
            codec=payload.codec,
            text=text,
            data=data,
        )

    def payload(self) -> Payload:
        if self.text is not None:
            return Payload.of(self.text, self.media_type)
        return Payload(
            ref=self.ref, size=self.size, media_type=self.media_type, codec=self.codec, data=self.data
        )


# kind -> column -> type. `word` is a string that repeats, kept as a dictionary in the file and
# as one object in memory.
COLUMNS: dict[str, dict[str, str]] = {
    "traces": {
        "trace_id": "string", "task_id": "word", "system": "word", "topology": "word", "version": "int",
        "finished": "bool", "num_events": "int", "num_edges": "int", "num_calls": "int",
        "num_payloads": "int", "num_rewards": "int", "num_credits": "int", "num_charges": "int",
        "meta": "json", "costs": "json", "metrics": "json",
    },
    "events": {
        "trace_id": "word", "id": "string", "seq": "int", "t": "float", "type": "word", "agent": "word",
        "role": "word", "from": "word", "to": "word", "tool": "word", "content_ref": "string",
        "trusted": "bool", "decision": "word", "options": "strings", "choice": "int", "propensity": "float",
        "option_propensities": "floats", "call": "string", "span": "span", "duration_s": "float",
        "tokens": "int", "status": "word", "inferred": "bool", "why": "word", "seed_key": "string", "pure": "bool",
        "extra": "json",
    },
    "edges": {
        "trace_id": "word", "src": "string", "dst": "string", "type": "word", "inferred": "bool", "why": "word",
    },
    "calls": {
        "trace_id": "word", "id": "string", "agent": "word", "role": "word", "policy": "word",
        "policy_version": "word", "versions": "versions", "harness": "word", "parent": "string", "keep": "int",
        "prompt_ids": "int32s", "completion_ids": "int32s", "logprobs": "float64s", "token_ends": "int32s",
        "prompt_ref": "string", "completion_ref": "string", "prompt_tokens": "int",
        "completion_tokens": "int", "estimated": "bool", "sampling": "sampling", "finish_reason": "word", "t": "float",
        "duration_s": "float",
    },
    "payloads": {
        "trace_id": "word", "ref": "string", "size": "int", "media_type": "word", "codec": "word",
        "text": "content", "data": "bytes",
    },
    "rewards": {
        "trace_id": "word", "family": "word", "unit": "word", "target": "word", "value": "float",
        "name": "word", "by": "word",
    },
    "credits": {
        "trace_id": "word", "unit": "word", "target": "word", "value": "float", "estimator": "word",
        "stderr": "float", "cost_tokens": "int", "cost_calls": "int", "assumes": "strings",
    },
    "charges": {
        "trace_id": "word", "channel": "word", "unit": "word", "target": "word", "value": "float", "by": "word",
    },
}  # fmt: skip
KINDS = tuple(COLUMNS)
YOUNGEST = "charges"
"""The one table that shards of 0.2 do not have."""


def arrow() -> Any:
    """pyarrow, or how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("Sealed traces (Parquet)", "parquet") from None
    return pyarrow


@cache
def arrow_schema(kind: str) -> pa.Schema:
    pa = arrow()
    types = {
        "string": pa.string(),
        "word": pa.string(),
        "content": pa.string(),
        "json": pa.string(),
        "bytes": pa.binary(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "strings": pa.list_(pa.string()),
        "floats": pa.list_(pa.float64()),
        "int32s": pa.list_(pa.int32()),
        "float64s": pa.list_(pa.float64()),
        "span": pa.struct([("start", pa.int64()), ("stop", pa.int64())]),
        "versions": pa.list_(pa.struct([("version", pa.string()), ("end", pa.int64())])),
        "sampling": pa.struct(
            [
                ("temperature", pa.float64()),
                ("top_p", pa.float64()),
                ("top_k", pa.int64()),
                ("max_tokens", pa.int64()),
                ("stop", pa.list_(pa.string())),
                ("key", pa.string()),
            ]
        ),
    }
    return pa.schema([(name, types[type_]) for name, type_ in COLUMNS[kind].items()])


def word_columns(kind: str) -> list[str]:
    """Columns to read as dictionaries."""
    return [name for name, type_ in COLUMNS[kind].items() if type_ == "word"]


def repeating_columns(kind: str) -> list[str]:
    """Columns to write as dictionaries: words, and content that several traces share."""
    return [name for name, type_ in COLUMNS[kind].items() if type_ in ("word", "content")]
