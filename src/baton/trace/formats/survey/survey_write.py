"""The survey's JSON, out: valid against its schema, and nothing of the trace lost but token arrays.

Source: the trace schema of arXiv 2605.02801. Its top level and its edges are closed, its events
open. So an event's own fields ride on the event under their own names, and what belongs to the
whole trace rides in one property, `baton`, of the first event.

Where a property of another system (`Event.extra`) has the name of a field: the survey's ten names
are the field's, for the schema checks them; any other name is the property's, so that what came
from a survey file goes back as it came. The one that gave way rides in `baton.shadowed`.

Invariant: from_survey(to_survey(trace)) equals the trace without the token arrays of its calls.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct, field

from baton.errors import TraceError
from baton.trace.formats.jsonl import all_finite, encode_record
from baton.trace.records import Call, Charge, Credit, Event, Floats, Ints, Payload, Reward
from baton.trace.trace import Trace

BATON_VERSION = 1
SURVEY_FIELDS = frozenset(
    ("id", "t", "type", "agent", "role", "from", "to", "tool", "content_ref", "trusted")
)  # fmt: skip
OWN_FIELDS = frozenset(Event.__struct_encode_fields__) - SURVEY_FIELDS - {"extra"}
REQUIRED_COSTS = ("tokens", "wall_clock_s")

_NO_TOKENS = {
    name: None for name, hint in get_type_hints(Call).items() if {Ints, Floats} & set(get_args(hint))
}
# Their schema's minimum is zero.
_COUNTED_COSTS = (*REQUIRED_COSTS, "tool_calls", "messages")


class ShadowedFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of one event had to give way to a property of the same name."""

    event: int
    """Its position in the file."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields; null where the trace has none."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Properties of other systems."""


class Rider(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The `baton` property: what the survey's form has no place for."""

    baton_version: int
    finished: bool = True
    meta: dict[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    """Without their token arrays."""
    payloads: tuple[Payload, ...] = ()
    rewards: tuple[Reward, ...] = ()
    """The records that the top level's `rewards` sums up."""
    credits: tuple[Credit, ...] = ()
    charges: tuple[Charge, ...] = ()
    inferred_edges: tuple[int, ...] = ()
    """Positions in `edges` of those that were inferred and not recorded."""
    edge_reasons: tuple[tuple[int, str], ...] = ()
    """Positions in `edges`, and why those were inferred."""
    unmeasured_costs: tuple[str, ...] = ()
    """Costs the schema asks for and the trace does not know; what stands there is an estimate."""
    shadowed: tuple[ShadowedFields, ...] = ()


def to_survey(trace: Trace) -> dict[str, Any]:
    """The trace as the survey's JSON, in plain lists and dictionaries."""
    if not trace.events:
        raise TraceError(
            f"trace {trace.trace_id} has no events; the survey's form needs one or more. Write it as .jsonl."
        )
    _check(trace)
    shadowed: list[ShadowedFields] = []
    events = [_event(event, place, shadowed) for place, event in enumerate(trace.events)]
    taken = [name for name in events[0] if is_rider_key(name)]
    events[0][f"{max(taken, key=len)}_" if taken else "baton"] = _plain(
        Rider(
            baton_version=BATON_VERSION,
            finished=trace.finished,
            meta=trace.header.meta,
            calls=tuple(msgspec.structs.replace(call, **_NO_TOKENS) for call in trace.calls),
            payloads=tuple(trace.payloads.values()),
            rewards=trace.rewards,
            credits=trace.credits,
            charges=trace.charges,
            inferred_edges=tuple(place for place, edge in enumerate(trace.edges) if edge.inferred),
            edge_reasons=tuple(
                (place, edge.why) for place, edge in enumerate(trace.edges) if edge.why is not None
            ),
            unmeasured_costs=tuple(name for name in REQUIRED_COSTS if name not in trace.costs),
            shadowed=tuple(shadowed),
        )
    )
    system = {} if trace.header.system is None else {"system": trace.header.system}
    return {
        "trace_id": trace.trace_id,
        "task_id": trace.header.task_id,
        **system,
        "topology": trace.header.topology,
        "events": events,
        "edges": [{"src": edge.src, "dst": edge.dst, "type": edge.type} for edge in trace.edges],
        "rewards": reward_sums(trace.rewards),
        "costs": {**_estimates(trace), **trace.costs},
        "metrics": dict(trace.metrics),
    }


def encode_survey(trace: Trace) -> bytes:
    return msgspec.json.format(msgspec.json.encode(to_survey(trace)), indent=2) + b"\n"


def is_rider_key(name: str) -> bool:
    """`baton`, or with underscores after it where other systems' properties took the shorter ones."""
    return name.startswith("baton") and not name[5:].strip("_")


def reward_sums(rewards: Iterable[Reward]) -> dict[str, float]:
    """One number per channel. Exact, so that it does not depend on the order of the records."""
    channels: defaultdict[str, list[float]] = defaultdict(list)
    for reward in rewards:
        channels[reward.channel].append(reward.value)
    try:
        return {name: math.fsum(values) for name, values in channels.items()}
    except OverflowError:
        raise TraceError("the rewards of one channel add up to more than a number can hold.") from None


def _event(event: Event, place: int, shadowed: list[ShadowedFields]) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(encode_record(event))
    del made["kind"]
    extra: dict[str, Any] = made.pop("extra", {})
    # Written out although they are defaults, so that a reader need not know Baton's.
    made.update(decision=event.decision, status=event.status, inferred=event.inferred)
    gave_way: dict[str, Any] = {}
    kept_out: dict[str, Any] = {}
    for name, value in extra.items():
        if name in SURVEY_FIELDS:
            kept_out[name] = value
            continue
        if name in OWN_FIELDS:
            gave_way[name] = made.get(name)
        made[name] = value
    if gave_way or kept_out:
        shadowed.append(ShadowedFields(event=place, fields=gave_way, extra=kept_out))
    return made


def _plain(rider: Rider) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(rider))
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"the trace cannot be written as JSON: {error}.") from None
    return plain


def _estimates(trace: Trace) -> dict[str, float]:
    """What stands in for required costs that were not measured: what the events add up to."""
    return {
        "tokens": float(sum(event.tokens or 0 for event in trace.events)),
        "wall_clock_s": max(event.t + (event.duration_s or 0.0) for event in trace.events),
    }


def _check(trace: Trace) -> None:
    """What the schema rules out and no property can carry."""
    if not all_finite(
        [trace.header.meta, trace.costs, trace.metrics, [reward.value for reward in trace.rewards]]
    ):
        raise TraceError(f"trace {trace.trace_id} holds numbers that are not finite; JSON has none.")
    for what, names in (
        ("trace_id and task_id", (trace.header.trace_id, trace.header.task_id)),
        (
            "the ids and agents of events",
            (name for event in trace.events for name in (event.id, event.agent)),
        ),
        ("the ends of edges", (name for edge in trace.edges for name in (edge.src, edge.dst))),
    ):
        if not all(names):
            raise TraceError(f"trace {trace.trace_id}: the survey's form needs {what} not to be empty.")
    if any(event.t < 0 for event in trace.events):
        raise TraceError(f"trace {trace.trace_id}: the survey's form needs times of zero or more.")
    if low := [name for name in _COUNTED_COSTS if trace.costs.get(name, 0) < 0]:
        raise TraceError(
            f"trace {trace.trace_id}: the survey's form needs a cost of zero or more for {low[0]!r}."
        )
