"""The orchestration trace: the one object every stage reads and adds records to.

G = (V, E): events and edges, with the calls, payloads, rewards, credits and charges that hang on them.
Immutable; a stage that adds something returns a new trace that shares the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct, field, structs

from baton.errors import TraceError, nearest
from baton.trace.records import Call, Charge, Credit, Edge, Event, Ints, Payload, Reward, Tagged
from baton.trace.vocabulary import Topology

FORMAT_VERSION = 1


class Header(Tagged, tag="trace", frozen=True, kw_only=True, omit_defaults=False):
    """What is known of a trace before its first event."""

    version: int = FORMAT_VERSION
    trace_id: str
    task_id: str
    system: str | None = None
    topology: Topology = "unknown"
    meta: dict[str, Any] = field(default_factory=dict)
    """Anything a producer wants kept: seed, recipe, harness, instance.

    Of a fork, `forked_from`: the trace it was made of.
    """


class End(Tagged, tag="end", frozen=True, kw_only=True):
    """What is known only once a trace is complete. A trace without one is unfinished."""

    costs: dict[str, float] = field(default_factory=dict)
    """`tokens` and `wall_clock_s`, and any further cost by name."""
    metrics: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Records by kind, as written: a file cut at a line boundary does not add up."""
    crc: int | None = None
    """A checksum of a JSON Lines trace, so that a flipped bit is an error; None: of one without."""


Record = Event | Edge | Call | Payload | Reward | Credit | Charge
"""Whatever hangs on a trace between its header and its end."""


class Trace(Struct, frozen=True, kw_only=True, dict=True):
    """A whole trace in memory."""

    header: Header
    events: tuple[Event, ...] = ()
    """In `seq` order, as every reader and recorder gives them."""
    edges: tuple[Edge, ...] = ()
    calls: tuple[Call, ...] = ()
    payloads: Mapping[str, Payload] = field(default_factory=dict)
    rewards: tuple[Reward, ...] = ()
    credits: tuple[Credit, ...] = ()
    charges: tuple[Charge, ...] = ()
    """What constraints count against it (`costs` is what the run itself took)."""
    costs: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    finished: bool = True
    """False while a run is live, or after it was cut off."""

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        return (
            f"<Trace {self.trace_id!r}: {len(self.events):,} events, {len(self.edges):,} edges, "
            f"{len(self.calls):,} calls{state}>"
        )

    @classmethod
    def gathered(cls, header: Header, records: Mapping[type, Sequence[Any]], end: End | None) -> Self:
        """A trace of its records by type, in any order. No end: it is unfinished."""
        payloads: dict[str, Payload] = {}
        for payload in records[Payload]:
            known = payloads.get(payload.ref)
            if known is None or known.data is None:  # one that is there wins over one withheld
                payloads[payload.ref] = payload
        return cls(
            header=header,
            events=tuple(sorted(records[Event], key=attrgetter("seq"))),
            edges=tuple(records[Edge]),
            calls=tuple(records[Call]),
            payloads=payloads,
            rewards=tuple(records[Reward]),
            credits=tuple(records[Credit]),
            charges=tuple(records[Charge]),
            costs=end.costs if end else {},
            metrics=end.metrics if end else {},
            finished=end is not None,
        )

    def by_kind(self) -> dict[str, Collection[Any]]:
        """Every record by its kind, causes before effects: a payload before what names it, a call before its events."""
        return {
            "payload": self.payloads.values(),
            "call": self.calls,
            "event": self.events,
            "edge": self.edges,
            "reward": self.rewards,
            "credit": self.credits,
            "charge": self.charges,
        }

    @property
    def trace_id(self) -> str:
        return self.header.trace_id

    @cached_property
    def position(self) -> dict[str, int]:
        """Event id -> index into `events`."""
        return {event.id: index for index, event in enumerate(self.events)}

    @cached_property
    def call_by_id(self) -> dict[str, Call]:
        return {call.id: call for call in self.calls}

    def event(self, event_id: str) -> Event:
        try:
            return self.events[self.position[event_id]]
        except KeyError:
            raise TraceError(
                f"trace {self.trace_id} has no event {event_id!r}. {nearest(event_id, self.position)}"
                if len(self.events) <= 200
                else f"trace {self.trace_id} has no event {event_id!r} among its {len(self.events):,}."
            ) from None

    def text(self, ref: str | None) -> str | None:
        """The text behind a content_ref; None when there is none or it is withheld."""
        payload = self.payloads.get(ref) if ref is not None else None
        return None if payload is None else payload.text()

    def prompt_ids(self, call: Call) -> Ints | None:
        """The whole prompt of a call, or None where some part of it was not recorded."""
        if not call.keep:
            return call.prompt_ids
        parts: list[Ints] = []
        want: int | None = None  # tokens still needed from the front of `current`'s context
        current = call
        seen: set[str] = set()
        while True:
            if current.id in seen:
                raise TraceError(f"call {call.id}: its chain of parents is a cycle at {current.id}.")
            seen.add(current.id)
            if current.prompt_ids is None:
                return None
            own = current.prompt_ids
            if want is not None:  # a parent: its context is prompt + completion, cut to `want`
                if want > current.keep + len(own) and current.completion_ids is None:
                    return None
                tail = own + (current.completion_ids or Ints())
                own = tail[: max(0, want - current.keep)]
                keep = min(want, current.keep)
            else:
                keep = current.keep
            parts.append(own)
            if keep == 0:
                break
            if current.parent is None or current.parent not in self.call_by_id:
                return None
            want = keep
            current = self.call_by_id[current.parent]
        parts.reverse()
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + part
        return whole

    def prefix(self, seq: int) -> Self:
        """G<=t: the events up to and including `seq`, and what hangs on them alone."""
        events = tuple(event for event in self.events if event.seq <= seq)
        kept = {event.id for event in events}
        said = {event.call for event in events}
        wanted = {event.content_ref for event in events}
        calls = tuple(call for call in self.calls if call.id in said)
        for call in calls:
            wanted.update((call.prompt_ref, call.completion_ref))
        return structs.replace(
            self,
            events=events,
            edges=tuple(edge for edge in self.edges if edge.src in kept and edge.dst in kept),
            calls=calls,
            payloads={ref: payload for ref, payload in self.payloads.items() if ref in wanted},
            rewards=(),
            credits=(),
            charges=(),
            costs={},
            metrics={},
            finished=self.finished and len(events) == len(self.events),
        )

    def with_records(self, *, rewards: Iterable[Reward] = (), credits: Iterable[Credit] = ()) -> Self:
        """The same trace with more rewards and credits on it."""
        return structs.replace(self, rewards=(*self.rewards, *rewards), credits=(*self.credits, *credits))

    def without_payloads(self) -> Self:
        """For sharing: every address stays, no content does."""
        return structs.replace(
            self, payloads={ref: payload.withheld() for ref, payload in self.payloads.items()}
        )


# Reading a header's `meta`, which may hold anything: what Baton wrote, another system's words, or damage.
#
# `run` says how `baton run` and `baton train` set a team up, `train` which step it was of; both are objects. Invariant:
# nothing in `meta` makes a reader fail but by `TraceError`, which says what is wrong and what to type.

T = TypeVar("T")


def is_fork(trace: Trace) -> bool:
    """Whether it is another trace run again with something different, and so no draw of its own."""
    return "forked_from" in trace.header.meta


def repeats(traces: Sequence[Trace]) -> dict[int, int]:
    """Place of a trace -> place of an earlier one that it repeats: the same calls, drawn by the same keys, said the
    same. Run with the seed it was run with before, a team does that, and it is no second rollout."""
    first: dict[Any, int] = {}
    found: dict[int, int] = {}
    for place, trace in enumerate(traces):
        key = _draws(trace)
        if key is not None and (before := first.setdefault(key, place)) != place:
            found[place] = before
    return found


def _draws(trace: Trace) -> Any:
    """All that was drawn in a trace; None where it does not say by which keys."""
    if not trace.calls or any(call.sampling is None or call.sampling.key is None for call in trace.calls):
        return None
    calls = tuple(
        (c.id, c.sampling, c.policy, c.policy_version, c.harness, c.prompt_ref, c.completion_ref)
        for c in trace.calls
    )
    return trace.header.task_id, is_fork(trace), calls


def drawn(traces: Sequence[Trace]) -> list[Trace]:
    """Those that are draws of their own, for whatever counts or compares rollouts: no forks, and each draw once. Where
    all are forks, they are what is asked about."""
    again = repeats(traces)
    found = [t for place, t in enumerate(traces) if place not in again and not is_fork(t)]
    return found or [t for place, t in enumerate(traces) if place not in again]


def part_of_training(trace: Trace) -> str:
    """What a trace was to a training run: a rollout that it learned from, or a measurement of how far it was; empty: it
    was of none."""
    told = meta_table(trace.header, "train")
    if "step" not in told:
        return ""
    return "training" if told.get("split") == "train" else f"measured at step {told['step']}"


def standing(trace: Trace) -> str:
    """What a trace is where it is no rollout like others: a fork, or of which part of training; empty: it is one."""
    if is_fork(trace):
        return f"a fork of {trace.header.meta['forked_from']}"
    return part_of_training(trace)


def meta_table(header: Header, *names: str) -> dict[str, Any]:
    """An object inside `meta`, such as `"run", "task"`; empty where there is none, or something else in its place."""
    found: Any = header.meta
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def meta_as(header: Header, kind: type[T], *names: str) -> T | None:
    """What stands inside `meta`, as a type; None where nothing does."""
    *above, last = names
    found = meta_table(header, *above).get(last)
    if found is None:
        return None
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"trace {header.trace_id}: meta.{'.'.join(names)} is not what Baton writes there: {error}. "
            "Type: baton validate FILE, for every problem."
        ) from None
