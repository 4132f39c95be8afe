"""What all agents of a `Recorder` share: one lock, one clock, one order, one place to write to.

Invariant: what is written can be read back as what it was. A record that could not is refused here,
with nothing of it written, and the next one is as good as if it had never been tried.
"""

from __future__ import annotations

import math
import reprlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import msgspec
import numpy as np

from baton.errors import TraceError, nearest
from baton.trace.records import Edge, Event, Floats, Ints, Payload
from baton.trace.sink import Sink
from baton.trace.trace import End, Header, Record
from baton.trace.validation.problem import shown
from baton.trace.validation.shape import first_fault
from baton.trace.vocabulary import DECISIONS, EVENT_TYPES, STATUSES, EdgeType, Status

if TYPE_CHECKING:
    from baton.trace.recorded_agent import RecordedAgent


_Array = TypeVar("_Array", Ints, Floats)


class EventDetails(TypedDict, total=False):
    """What may be said of any event besides its own arguments; see `Event` for each."""

    call: str | None
    """Which call of this agent said it, where that is not its latest; None when no model did."""
    span: tuple[int, int]
    options: Sequence[str]
    choice: int | str
    """Index into `options`, or the option itself."""
    propensity: float
    option_propensities: Sequence[float]
    duration_s: float
    tokens: int
    status: Status
    trusted: bool
    why: str
    """Nobody recorded it: it is marked as inferred, for this reason. So are the edges that lead to it and from it."""
    seed_key: str
    extra: dict[str, Any]


class Log:
    """The order of a trace as it is being written."""

    def __init__(self, sink: Sink, clock: Callable[[], float], *, keep_content: bool) -> None:
        self.lock = threading.RLock()
        self.agents: dict[str, RecordedAgent] = {}
        self.closed = False
        self.tokens: int | None = None
        self.counts: Counter[str] = Counter()
        """Records by kind."""
        self.types: Counter[str] = Counter()
        """Events by type."""
        self._sink = sink
        self._clock = clock
        self._zero = clock()
        self._end = 0.0  # of whatever ended last
        self._keep_content = keep_content
        self._reasons: dict[str, str] = {}  # event that was inferred -> why
        self._refs: set[str] = set()
        self._ahead: list[Payload] = []  # wait for the record that names them

    def now(self) -> float:
        """Seconds since the trace began."""
        return max(0.0, round(self._clock() - self._zero, 6))

    def started(self, duration_s: float | None) -> float:
        """When something began that ended now."""
        if duration_s is None:
            return self.now()
        if not isinstance(duration_s, int | float) or not 0 <= duration_s < math.inf:
            raise TraceError(f"duration_s is {duration_s!r}; expected a finite number >= 0.")
        return max(0.0, round(self.now() - duration_s, 6))

    def next_call_id(self) -> str:
        return f"c{self.counts['call'] + 1}"

    def payloads(self, *contents: Any) -> list[str | None]:
        """Addresses of contents; each content is written once, with the record that first names it."""
        refs: list[str | None] = []
        for content in contents:
            if content is None:
                refs.append(None)
                continue
            payload = _payload(content)
            if payload.ref not in self._refs and all(payload.ref != ahead.ref for ahead in self._ahead):
                self._ahead.append(payload if self._keep_content else payload.withheld())
            refs.append(payload.ref)
        return refs

    def event(self, depends: Mapping[str, EdgeType], **fields: Any) -> str:
        """Write one event with the edges that lead to it. Returns its id."""
        seq = self.counts["event"] + 1
        event = Event(id=f"e{seq}", seq=seq, **{name: plain(value) for name, value in fields.items()})
        check_word("event type", event.type, EVENT_TYPES)
        check_word("decision", event.decision, DECISIONS)
        check_word("status", event.status, STATUSES)
        # An agent's own line first: graphs follow the first edge into an event to find such lines.
        inward = sorted(depends.items(), key=lambda source: source[1] != "temporal")
        self.write(event, *(self._edge(src, event, kind) for src, kind in inward))
        if event.why is not None:
            self._reasons[event.id] = event.why
        self.types[event.type] += 1
        self._end = max(self._end, event.t + (event.duration_s or 0.0))
        if event.tokens is not None:
            self.tokens = (self.tokens or 0) + event.tokens
        return event.id

    def _edge(self, src: str, event: Event, kind: EdgeType) -> Edge:
        """An edge is as sure as both its ends."""
        why = event.why or self._reasons.get(src)
        return Edge(src, event.id, kind, why is not None, why)

    def write(self, *records: Record) -> None:
        if self.closed:
            raise TraceError("this trace is closed: nothing more can be recorded in it.")
        ahead, self._ahead = self._ahead, []
        for record in records:
            must_be_readable(record)
        together: tuple[Record, ...] = (*ahead, *records)
        self._sink.write(together)
        self._refs.update(payload.ref for payload in ahead)
        self.counts.update(str(record.__struct_config__.tag) for record in together)

    def close(self, *, finished: bool, metrics: dict[str, float]) -> None:
        """Not finished: it was cut off, and says so to its readers."""
        if finished:
            costs: dict[str, float] = {"wall_clock_s": max(self.now(), self._end)}
            if self.tokens is not None:
                costs["tokens"] = self.tokens
            costs |= {"messages": self.types["message"], "tool_calls": self.types["tool_call"]}
            self._sink.end(costs=costs, metrics=metrics)
        self.closed = True
        self._sink.close()

    def must_be_new(self, name: str) -> None:
        if not name:
            raise TraceError("an agent needs a name that is not empty.")
        if name in self.agents:
            raise TraceError(f"agent {name!r} is already in this trace; a name is used only once.")

    def add_agent(self, agent: RecordedAgent) -> None:
        self.must_be_new(agent.id)
        self.agents[agent.id] = agent


def _payload(content: Any) -> Payload:
    if isinstance(content, str):
        return Payload.of(content)
    if isinstance(content, bytes | bytearray):
        return Payload.of(bytes(content), "application/octet-stream")
    try:
        return Payload.of(msgspec.json.encode(content, order="deterministic"), "application/json")
    except (TypeError, msgspec.MsgspecError):
        return Payload.of(repr(content))  # a result of some library's own type: its words are what is known
    except RecursionError:
        return Payload.of(reprlib.repr(content))  # without end, or too deep to follow


def must_be_readable(record: Header | Record | End) -> None:
    """Raises `TraceError` for a record that would make its file one that cannot be read."""
    if (faulty := first_fault(record)) is None:
        return
    field, (_, was, expected) = faulty
    name = str(record.__struct_config__.tag)
    if field is None:
        raise TraceError(f"this record of a trace ({name}) cannot be kept: it holds {was}.")
    raise TraceError(f"{name}: {field} is {was}; expected {expected}.")


def plain(value: Any) -> Any:
    """A number of numpy's as Python's own, anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def numbers(kind: type[_Array], name: str, values: Any) -> _Array | None:
    """Token ids or log-probabilities as the trace keeps them."""
    try:
        return None if values is None else kind(values)
    except (TypeError, ValueError, OverflowError):
        expected = "32-bit integers" if kind is Ints else "numbers"
        raise TraceError(f"{name} is {shown(values)}; expected an array of {expected}.") from None


def check_word(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise TraceError(f"{what} {given!r} is not a word of the trace. {nearest(given, known)}")


def checked_details(details: EventDetails, call: str | None, length: int | None = None) -> dict[str, Any]:
    """The details as event fields. Raises `TraceError` for what a validator would refuse later.

    `call` said it, in a completion of `length` tokens where that is known.
    """
    fields: dict[str, Any] = {
        name: details[name] for name in ("status", "trusted", "seed_key", "extra") if name in details
    }
    unknown = set(details) - set(EventDetails.__annotations__)
    if unknown:
        name = sorted(unknown)[0]
        raise TraceError(
            f"{name!r} is not something an event has. {nearest(name, EventDetails.__annotations__)}"
        )
    if "why" in details:
        if not details["why"]:
            raise TraceError("why is empty; expected the reason for which an event was inferred.")
        fields |= {"inferred": True, "why": details["why"]}
    if "span" in details:
        start, stop = span = fields["span"] = (int(details["span"][0]), int(details["span"][1]))
        if call is None:
            raise TraceError(f"span {span} has no call to point into. Log it first: agent.call(...)")
        if not 0 <= start <= stop or (length is not None and stop > length):
            raise TraceError(f"span {span} is not inside call {call}, of {length} completion tokens.")
    if "options" in details:
        fields |= _choice(tuple(details["options"]), details)
    elif "choice" in details or "option_propensities" in details:
        raise TraceError("choice and option_propensities need options: what could have been chosen.")
    if "propensity" in details:
        fields["propensity"] = plain(details["propensity"])
    chance = fields.get("propensity")
    if isinstance(chance, int | float) and not 0 < chance <= 1:
        raise TraceError(f"propensity {chance} is not a probability above 0 and at most 1.")
    return fields


def _choice(options: tuple[str, ...], details: EventDetails) -> dict[str, Any]:
    fields: dict[str, Any] = {"options": options}
    if "choice" in details:
        choice = details["choice"]
        if isinstance(choice, str):
            if choice not in options:
                raise TraceError(f"choice {choice!r} is not among the options. {nearest(choice, options)}")
            choice = options.index(choice)
        if not 0 <= choice < len(options):
            raise TraceError(f"choice {choice} is no index into {len(options)} options.")
        fields["choice"] = choice
    if "option_propensities" in details:
        chances = fields["option_propensities"] = tuple(map(float, details["option_propensities"]))
        if len(chances) != len(options):
            raise TraceError(f"{len(chances)} option_propensities for {len(options)} options.")
        if "propensity" not in details and "choice" in fields:
            fields["propensity"] = chances[fields["choice"]]
    return fields


def common_prefix(left: Ints, right: Ints) -> int:
    """How many tokens two sequences share from their start."""
    length = min(len(left), len(right))
    differ = np.flatnonzero(left.numpy()[:length] != right.numpy()[:length])
    return int(differ[0]) if len(differ) else length
