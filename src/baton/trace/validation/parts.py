"""What the checks read: the records of one trace, each with the place it was found at.

Columns and indexes that several checks need are made once, on first use. Records too broken to
decode are not here; their ids are in `broken`, so that nothing that refers to them is blamed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baton.errors import TraceError
from baton.trace.graph.arrays import edge_endpoints
from baton.trace.graph.order import causal_order
from baton.trace.records import Call, Charge, Credit, Edge, Event, Payload, Reward
from baton.trace.trace import End, Header, Trace
from baton.trace.validation.problem import Found
from baton.trace.vocabulary import EVENT_TYPES, EventType

Indexes = NDArray[np.int64]

KINDS: dict[type, str] = {
    Event: "event",
    Edge: "edge",
    Call: "call",
    Payload: "payload",
    Reward: "reward",
    Credit: "credit",
    Charge: "charge",
}

_READ = (
    "id", "seq", "t", "type", "agent", "tool", "choice", "propensity", "option_propensities",
    "call", "span", "duration_s", "tokens",
)  # fmt: skip
_BATCH = 2_000
_ANY = Header(trace_id="", task_id="")
_TYPE_NUMBERS: dict[EventType, int] = {type_: number for number, type_ in enumerate(EVENT_TYPES)}


class Parts:
    """One trace in pieces."""

    def __init__(self, found: Found) -> None:
        self.found = found
        """Where problems of this trace are reported."""
        self.header: Header | None = None
        self.header_line: int | None = None
        self.events: Sequence[Event] = []
        self.edges: Sequence[Edge] = []
        self.calls: Sequence[Call] = []
        self.payloads: Sequence[Payload] = []
        self.rewards: Sequence[Reward] = []
        self.credits: Sequence[Credit] = []
        self.charges: Sequence[Charge] = []
        self.end: End | None = None
        self.end_line: int | None = None
        self.crc = 0
        """The sum of the checksums of the lines before the end, in a file of lines."""
        self._columns: dict[str, list[Any]] = {name: [] for name in _READ}
        self.payload_keys: Sequence[str] | None = None
        """What each payload is filed under, where that is not simply its own address."""
        self.lines: dict[str, Sequence[int]] = {}
        """Where each record of a kind stood; its index, for kinds not in here."""
        self.broken: set[str] = set()
        """Ids of events and calls that were there but could not be decoded."""
        self.in_range: set[str] = set()
        """Kinds of record whose values are known to be within their ranges."""
        self.num_broken: dict[str, int] = {}
        self.lost = False
        """True where lines could not even be told apart as records: any id may have been theirs."""
        self.calls_known = True
        """False where the file's form cannot hold calls."""
        self.seq_given = True
        """False where events carry no `seq` and their order has to be concluded."""
        self.some_seq_given = False
        """True where it is missing from some events but not from all."""

    @classmethod
    def of_trace(cls, trace: Trace, found: Found) -> Parts:
        parts = cls(found)
        found.trace_id = trace.trace_id
        parts.header = trace.header
        parts.events, parts.edges, parts.calls = trace.events, trace.edges, trace.calls
        parts.payloads, parts.payload_keys = list(trace.payloads.values()), list(trace.payloads)
        parts.rewards, parts.credits, parts.charges = trace.rewards, trace.credits, trace.charges
        parts.end = End(costs=trace.costs, metrics=trace.metrics) if trace.finished else None
        return parts

    def of(self, kind: str) -> Sequence[Any]:
        records: Sequence[Any] = getattr(self, f"{kind}s")
        return records

    def place(self, kind: str, index: int) -> int:
        return self.lines[kind][index] if kind in self.lines else index

    def set_aside(self, kind: str, bad: Set[int]) -> None:
        """Take records out of what the next levels read."""
        records = self.of(kind)
        kept = [index for index in range(len(records)) if index not in bad]
        if kind in ("event", "call"):
            self.broken.update(
                id_ for index in bad if isinstance(id_ := getattr(records[index], "id", None), str)
            )
        self.num_broken[kind] = self.num_broken.get(kind, 0) + len(bad)
        self.lines[kind] = [self.place(kind, index) for index in kept]
        if kind == "payload" and self.payload_keys is not None:
            self.payload_keys = [self.payload_keys[index] for index in kept]
        self._columns = {name: [] for name in _READ}
        setattr(self, f"{kind}s", [records[index] for index in kept])

    def excuses(self, id_: str | None) -> bool:
        """Whether an id that is not there may have been a broken record's."""
        return self.lost or id_ in self.broken

    def report(self, code: str, kind: str, index: int, field: str | None, was: str, expected: str) -> None:
        """Report a problem of the record `of(kind)[index]`."""
        record, place = self.of(kind)[index], self.place(kind, index)
        event_id = record.id if kind == "event" else None
        name = label(kind, record)
        self.found.add(code, name, was, expected, event_id=event_id, position=place, field=field)

    def column(self, name: str) -> list[Any]:
        """One field of every event, out of those that checks read."""
        self.fill_columns()
        return self._columns[name]

    def fill_columns(self) -> None:
        """Add the events that came since. Cheapest right after they were decoded, while they are in cache."""
        for start in range(len(self._columns["id"]), len(self.events), _BATCH):
            batch = self.events[start : start + _BATCH]
            for name, column in self._columns.items():
                column.extend(map(attrgetter(name), batch))

    def having(self, name: str) -> list[int]:
        """Indexes of the events that have a value in this field."""
        column = self.column(name)
        if column.count(None) == len(column):
            return []
        return [index for index, value in enumerate(column) if value is not None]

    def of_type(self, *types: EventType) -> Indexes:
        """Indexes of the events of these types."""
        return np.flatnonzero(np.isin(self._type_numbers, [_TYPE_NUMBERS[type_] for type_ in types]))

    @cached_property
    def _type_numbers(self) -> NDArray[np.int8]:
        numbers = map(_TYPE_NUMBERS.__getitem__, self.column("type"))
        return np.fromiter(numbers, dtype=np.int8, count=len(self.events))

    def edges_between(self, src: EventType, dst: EventType) -> list[int]:
        """Indexes of the edges from events of one type to events of another."""
        whole = np.flatnonzero((self.src >= 0) & (self.dst >= 0))
        types = self._type_numbers
        match = (types[self.src[whole]] == _TYPE_NUMBERS[src]) & (
            types[self.dst[whole]] == _TYPE_NUMBERS[dst]
        )
        found: list[int] = whole[match].tolist()
        return found

    @cached_property
    def position(self) -> dict[str, int]:
        """Event id -> index; of events with the same id, the last."""
        return dict(zip(self.column("id"), range(len(self.events)), strict=True))

    @cached_property
    def _joined(self) -> tuple[Indexes, Indexes] | None:
        """The ends of all edges, if every one is there and every event's id is its own."""
        try:
            # Only events and edges are read; they need not be tuples for that.
            src, dst = edge_endpoints(Trace(header=_ANY, events=self.events, edges=self.edges))  # type: ignore[arg-type]
        except TraceError:
            return None
        return src.astype(np.int64), dst.astype(np.int64)

    @property
    def ids_are_unique(self) -> bool:
        return self._joined is not None or len(self.position) == len(self.events)

    @cached_property
    def src(self) -> Indexes:
        """For each edge, its source's index into `events`; -1 where there is none."""
        return self._joined[0] if self._joined else self._resolved("src")

    @cached_property
    def dst(self) -> Indexes:
        return self._joined[1] if self._joined else self._resolved("dst")

    def _resolved(self, end: str) -> Indexes:
        ids = map(attrgetter(end), self.edges)
        get = self.position.get
        return np.fromiter((get(id_, -1) for id_ in ids), dtype=np.int64, count=len(self.edges))

    @cached_property
    def seq(self) -> Indexes:
        """Each event's place in the causal order."""
        if self.seq_given:
            return np.array(self.column("seq"), dtype=np.int64)
        good = (self.src >= 0) & (self.dst >= 0)
        times = self.column("t")
        order = causal_order(times, self.src[good], self.dst[good])
        if order is None:  # a circle: no order respects every edge, so let time decide
            order = sorted(range(len(times)), key=lambda index: (times[index], index))
        place = np.empty(len(times), dtype=np.int64)
        place[order] = np.arange(len(times))
        return place

    @cached_property
    def call_position(self) -> dict[str, int]:
        return {call.id: index for index, call in enumerate(self.calls)}


def label(kind: str, record: Any) -> str:
    """How a problem names a record."""
    if kind == "edge":
        return f"edge {record.src} > {record.dst}"
    if kind in ("event", "call"):
        return f"{kind} {record.id}"
    if kind == "payload":
        return f"payload {record.ref}"
    return f"{kind} of {record.unit} {record.target}"
