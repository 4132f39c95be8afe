"""Writers: traces in other systems' forms. Each is a format, by name, like those of `baton.trace.formats`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from baton.trace.formats.format import Format
from baton.trace.trace import Trace


def _encode_atif(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.connect.writers.atif import encode_atif  # when it is needed

    return map(encode_atif, traces)


def _encode_otlp(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.connect.writers.otlp import encode_otlp_json

    return encode_otlp_json(traces)


def _encode_otlp_protobuf(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.connect.writers.otlp import encode_otlp_protobuf

    return encode_otlp_protobuf(traces)


FORMATS: Final[dict[str, Format]] = {
    format_.name: format_
    for format_ in (
        Format(
            name="atif", about="ATIF v1.8, one trace (baton import reads it back)", endings=(".atif.json",),
            encode=_encode_atif, one_trace=True,
        ),
        Format(
            name="otlp", about="OpenTelemetry spans as JSON Lines (baton import reads them back)",
            endings=(".otlp.jsonl", ".otlp.json"), encode=_encode_otlp,
        ),
        Format(
            name="otlp-protobuf", about="the same in protobuf, each request behind its length", endings=(".otlp.pb",),
            encode=_encode_otlp_protobuf,
        ),
    )
}  # fmt: skip
"""Name -> format, beside those that Baton keeps traces in."""
