"""Writers: traces in other systems' forms. Each is a format, by name, like those of `baton.trace.formats`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from baton.trace.formats.format import Format
from baton.trace.trace import Trace


def _encode_atif(traces: Iterable[Trace]) -> Iterator[bytes]:
    from baton.connect.writers.atif import encode_atif  # when it is needed

    return map(encode_atif, traces)


FORMATS: Final[dict[str, Format]] = {
    format_.name: format_
    for format_ in (
        Format(
            name="atif", about="ATIF v1.8, one trace (baton import reads it back)", endings=(".atif.json",),
            encode=_encode_atif, one_trace=True,
        ),
    )
}  # fmt: skip
"""Name -> format, beside those that Baton keeps traces in."""
