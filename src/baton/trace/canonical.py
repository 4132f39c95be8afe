"""One hash for what happened in a trace, however it is stored.

Two traces that differ only in the order of their records, in the format they went through, or in
how fast things went have the same hash; so a resumed or replayed run can be compared with the first.

In it: every field of the header, of events, edges, calls (token arrays too), rewards, credits and charges;
the addresses of payloads (not their content: an address is its hash, and withholding it changes
nothing); costs, metrics and `finished`.
Left out unless `times`: `t` and `duration_s` of events and calls, and the cost `wall_clock_s`.
`Header.meta` and `Event.extra` are in it whole: keep clock readings out of them.

The encoding: BLAKE2b (20 bytes) over lines of JSON. Each kind's name is a line, then come its
records, each the array of its fields in the order they are declared; keys of dictionaries sorted,
numbers that are floats by type written as floats, zero without a sign; `why` and `versions` come last, and
only where there is one. Records of a kind are sorted as bytes (events by `seq` first). A field that a later version
adds may change every hash, so compare hashes made by the same version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import groupby, islice, pairwise
from operator import attrgetter
from typing import Any

import msgspec

from baton.trace.records import Call, Charge, Credit, Edge, Event, Reward, Sampling, encode_hook
from baton.trace.trace import Header, Trace

_TIMES = ("t", "duration_s")
_FLOATS = (*_TIMES, "propensity", "option_propensities", "sampling", "value", "stderr")
_RARE = ("why", "versions")
"""Fields that came later: a record without one has the hash that it always had."""
_BATCH_LINES = 4096

_encode = msgspec.json.Encoder(enc_hook=encode_hook, order="deterministic").encode


def canonical_hash(trace: Trace, times: bool = False) -> str:
    """40 hex digits. Equal for traces that say the same; with `times`, and at the same times."""
    hash_ = blake2b(digest_size=20)
    for lines in _sections(trace, times):
        while batch := list(islice(lines, _BATCH_LINES)):
            hash_.update(b"\n".join(batch) + b"\n")
    return hash_.hexdigest()


def _sections(trace: Trace, times: bool) -> Iterator[Iterator[bytes]]:
    costs = {name: _float(cost) for name, cost in trace.costs.items() if times or name != "wall_clock_s"}
    metrics = {name: _float(value) for name, value in trace.metrics.items()}
    yield iter((b"header", _line(Header, times)(trace.header)))
    yield _events(trace.events, _line(Event, times))
    for name, kind, records in (
        (b"edge", Edge, trace.edges),
        (b"call", Call, trace.calls),
        (b"reward", Reward, trace.rewards),
        (b"credit", Credit, trace.credits),
    ):
        yield iter((name, *sorted(map(_line(kind, times), records))))
    if trace.charges:  # they came later: a trace without any has the hash that it always had
        yield iter((b"charge", *sorted(map(_line(Charge, times), trace.charges))))
    yield iter((b"payload", *sorted(map(_encode, trace.payloads))))
    yield iter((b"end", _encode([costs, metrics, trace.finished])))


def _events(events: Iterable[Event], line: Callable[[Event], bytes]) -> Iterator[bytes]:
    yield b"event"
    seq = attrgetter("seq")
    events = tuple(events)
    if all(a < b for a, b in pairwise(map(seq, events))):  # as readers give them
        yield from map(line, events)
        return
    for _, group in groupby(sorted(events, key=seq), key=seq):
        yield from sorted(map(line, group))


def _line(kind: type[msgspec.Struct], times: bool) -> Callable[[Any], bytes]:
    """What makes a record of one kind into its line."""
    names = [name for name in kind.__struct_fields__ if name not in _RARE and (times or name not in _TIMES)]
    floats = [place for place, name in enumerate(names) if name in _FLOATS]
    fields = attrgetter(*names)
    rare = [name for name in _RARE if name in kind.__struct_fields__]
    if not floats and not rare:
        return lambda record: _encode(fields(record))

    def line(record: Any) -> bytes:
        row = list(fields(record))
        row += [value for name in rare if (value := getattr(record, name)) is not None]
        for place in floats:
            if row[place] is not None:
                row[place] = _float(row[place])
        return _encode(row)

    return line


def _float(value: Any) -> Any:
    """Python lets 1 stand where 1.0 is meant, and a file brings back 1.0; both are the same number."""
    if isinstance(value, tuple):
        return [_float(part) for part in value]
    if isinstance(value, Sampling):
        rest = (value.top_k, value.max_tokens, value.stop, value.key)
        return [_float(value.temperature), _float(value.top_p), *rest]
    return float(value) + 0.0
