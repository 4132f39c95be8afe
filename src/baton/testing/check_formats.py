"""Check a trace format: what it writes it reads back, the same each time, and any trace is written or refused.

The traces are rollouts of a small team and odd ones: no events, unfinished, everything in another order, payloads
left out, and text that a format may stumble over (quotes, line ends, markup, other scripts).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from baton.errors import BatonError
from baton.testing.check_tools import CheckFailed, require
from baton.testing.sample_rollouts import sample_group
from baton.trace.formats.format import Format
from baton.trace.records import Event, Payload
from baton.trace.trace import Header, Trace

_HOSTILE = (
    'a "quoted", comma',
    "two\nlines\r\nand\ttabs",
    "<script>alert(1)</script> & | ```",
    "日本語 \u202e \u0000 🎼",
    "",
)


def check_format(format_: Format, traces: Sequence[Trace] = ()) -> None:
    """`traces` are yours, beside Baton's own odd ones. A trace may be refused with a BatonError, never crash."""
    require(
        isinstance(format_, Format),
        f"expected a baton.trace.formats.Format, got {type(format_).__name__}.",
    )
    who = f"format {format_.name!r}"
    require(format_.about.strip(), f"{who}: it does not say what it is in `about`.")
    for ending in format_.endings:
        require(ending.startswith("."), f"{who}: the ending {ending!r} has no dot before it.")
    writes = format_.encode is not None or format_.write is not None
    require(writes or format_.read_all, f"{who}: it has neither read_all nor encode nor write.")
    require(
        not format_.is_lossless or format_.read_all,
        f"{who}: it says is_lossless and has no read_all to show it.",
    )
    if not writes:
        return
    given = [*sample_group(), *traces, *odd_traces()]
    written = sum(_check_one(format_, [trace], who) for trace in given)
    require(written, f"{who}: it refused every one of {len(given)} traces.")
    if not format_.one_trace:
        _check_one(format_, sample_group(), who)


def odd_traces() -> list[Trace]:
    """Traces that are allowed and seldom: what a format's writer may have forgotten."""
    first = sample_group()[0]
    said = [Payload.of(text) for text in _HOSTILE]
    events = tuple(
        Event(
            id=f"e{place}",
            t=float(place),
            type="message",
            agent=text or "a",
            seq=place,
            to="b",
            content_ref=each.ref,
        )
        for place, (text, each) in enumerate(zip(_HOSTILE, said, strict=True))
    )
    return [
        Trace(header=Header(trace_id="empty", task_id="k")),
        structs.replace(first, finished=False, costs={}, metrics={}),
        structs.replace(first, calls=(), rewards=(), credits=()),
        first.without_payloads(),
        Trace(
            header=Header(trace_id="hostile", task_id="k"),
            events=events,
            payloads={each.ref: each for each in said},
        ),
    ]


def _check_one(format_: Format, traces: list[Trace], who: str) -> bool:
    """Whether the traces were written; if so, they were written the same twice and are read back."""
    before = msgspec.json.encode([trace.events for trace in traces])
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / f"{turn}{next(iter(format_.endings), '')}" for turn in ("first", "again")]
        names = ", ".join(trace.trace_id for trace in traces)
        if not all(_written(format_, traces, place, f"{who}: trace {names}") for place in places):
            return False
        require(
            msgspec.json.encode([trace.events for trace in traces]) == before,
            f"{who}: writing changed the trace {names}.",
        )
        if format_.encode is not None:
            same = places[0].read_bytes() == places[1].read_bytes()
            require(same, f"{who}: trace {names} written twice gives other bytes.")
        if format_.read_all is not None:
            _check_read(format_, traces, places[0], f"{who}: trace {names}")
    return True


def _written(format_: Format, traces: list[Trace], place: Path, which: str) -> bool:
    try:
        if format_.write is not None:
            format_.write(iter(traces), place)
        elif format_.encode is not None:
            place.write_bytes(b"".join(format_.encode(iter(traces))))
    except BatonError:
        return False
    except Exception as error:
        raise CheckFailed(f"{which}: writing fails with {error!r}. Refuse it with a BatonError.") from error
    return True


def _check_read(format_: Format, traces: list[Trace], place: Path, which: str) -> None:
    assert format_.read_all is not None
    try:
        found = list(format_.read_all(place))
    except Exception as error:
        raise CheckFailed(f"{which}: what was written cannot be read: {error!r}.") from error
    ids = sorted(trace.trace_id for trace in found)
    require(ids == sorted(trace.trace_id for trace in traces), f"{which}: read back as {ids}.")
    if format_.is_lossless:
        theirs = {trace.trace_id: trace for trace in found}
        require(
            all(theirs[trace.trace_id] == _as_read(trace) for trace in traces),
            f"{which}: it is not read back equal.",
        )
    head = place.read_bytes()[: 1 << 16] if place.is_file() else b""
    if format_.recognises is not None and head:
        require(format_.recognises(head), f"{which}: `recognises` does not know what the format wrote.")


def _as_read(trace: Trace) -> Trace:
    """What reading gives: events by `seq`, and a header whose tuples have become JSON's lists."""
    meta = msgspec.json.decode(msgspec.json.encode(trace.header.meta))
    events = tuple(sorted(trace.events, key=lambda event: event.seq))
    return structs.replace(trace, header=structs.replace(trace.header, meta=meta), events=events)
