"""The survey's JSON (arXiv 2605.02801), in: files Baton wrote, and files of others.

A file of Baton's (its first event has the `baton` property) is taken at its word. In any other,
an event's property is taken for a field only if it fits the field exactly; the rest is kept in
`Event.extra`. An order (`seq`) is made where there is none.

Invariant: to_survey(from_survey(file)) has every key and value of the file.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np
from msgspec import Struct, field, structs

from baton.errors import FormatError
from baton.installed import upgrade_hint
from baton.trace.formats.decoding import no_collection
from baton.trace.formats.survey.survey_write import (
    BATON_VERSION,
    OWN_FIELDS,
    SURVEY_FIELDS,
    Rider,
    ShadowedFields,
    is_rider_key,
    reward_sums,
)
from baton.trace.graph.order import causal_order
from baton.trace.records import Edge, Event, Reward, decode_hook
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import REWARD_FAMILIES, RewardFamily, Topology

T = TypeVar("T")

_FIELD_TYPES = {name: kind for name, kind in get_type_hints(Event).items() if name in OWN_FIELDS}
_FAMILY_OF_CHANNEL: dict[str, RewardFamily] = {
    "team": "shared",
    "verifier": "debate",
    **{family: family for family in REWARD_FAMILIES},
}
_NO_SHADOW = ShadowedFields(event=0)
_ALL_FIELDS = SURVEY_FIELDS | OWN_FIELDS


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    trace_id: str
    task_id: str
    events: list[dict[str, Any]]
    edges: list[Edge]
    rewards: dict[str, float]
    costs: dict[str, float]
    system: str | None = None
    topology: Topology = "unknown"
    metrics: dict[str, float] = field(default_factory=dict)


class _RawFile(_File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    events: list[msgspec.Raw]  # type: ignore[assignment]  # each by itself, and most of them straight from its bytes


_raw_decoder = msgspec.json.Decoder(_RawFile)
_events_decoder = msgspec.json.Decoder(list[Event], dec_hook=decode_hook)
_NOT_FIELDS = (b'"extra"', b'"kind"')
"""Properties of other systems, where these names are on an event: they are not the field and the tag of ours."""


def read_survey(path: str | os.PathLike[str]) -> Trace:
    try:
        content = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        with no_collection():
            own = from_own_survey(content)
            return from_survey(msgspec.json.decode(content)) if own is None else own
    except RecursionError:
        raise FormatError(f"{path} is not JSON that can be read: it is nested too deep.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not JSON: {error}.") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def from_survey(content: Mapping[str, Any]) -> Trace:
    """The trace in a survey file's decoded JSON."""
    file = _convert(content, _File, "the file")
    if not file.events:
        raise FormatError("a survey trace needs at least one event; this one has none.")
    rider, events = _ride_off(file.events)
    if rider is None:
        return _trace(file, _foreign_events(events, file.edges), Rider(baton_version=BATON_VERSION))
    shadows = {shadow.event: shadow for shadow in rider.shadowed}
    made = [_own_event(properties, place, shadows) for place, properties in enumerate(events)]
    return _trace(file, made, rider)


def from_own_survey(document: bytes) -> Trace | None:
    """The trace of a file that Baton wrote, without a dictionary for each event; None: read it by `from_survey`.

    What is wrong with a document, and whether it is Baton's at all, is not said here.
    """
    try:
        file = _raw_decoder.decode(document)
        if not file.events:
            return None
        rider, first = _ride_off([msgspec.json.decode(file.events[0])])
        if rider is None:
            return None
        shadows = {shadow.event: shadow for shadow in rider.shadowed}
        made = [_own_event(first[0], 0, shadows), *_rest(file.events[1:], shadows)]
        return _trace(file, made, rider)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, FormatError):
        return None


def _rest(events: list[msgspec.Raw], shadows: dict[int, ShadowedFields]) -> list[Event]:
    """All events but the first; at once where none has properties that are no fields."""
    joined = b"[%b]" % b",".join(events)
    if not shadows and not any(name in joined for name in _NOT_FIELDS):
        try:
            return _events_decoder.decode(joined)
        except msgspec.ValidationError:
            pass
    return [_own_event(msgspec.json.decode(raw), place, shadows) for place, raw in enumerate(events, start=1)]


def _trace(file: _File, made: list[Event], rider: Rider) -> Trace:
    return Trace(
        header=Header(
            trace_id=file.trace_id,
            task_id=file.task_id,
            system=file.system,
            topology=file.topology,
            meta=rider.meta,
        ),
        events=tuple(sorted(made, key=attrgetter("seq"))),
        edges=_edges(file.edges, set(rider.inferred_edges), dict(rider.edge_reasons)),
        calls=rider.calls,
        payloads={payload.ref: payload for payload in rider.payloads},
        rewards=_rewards(file.rewards, rider.rewards, file.trace_id),
        credits=rider.credits,
        charges=rider.charges,
        costs={name: cost for name, cost in file.costs.items() if name not in rider.unmeasured_costs},
        metrics=file.metrics,
        finished=rider.finished,
    )


def _edges(edges: Sequence[Edge], inferred: set[int], reasons: dict[int, str]) -> tuple[Edge, ...]:
    """Edges with what the survey's closed form could not say of them."""
    if not inferred and not reasons:
        return tuple(edges)
    return tuple(
        Edge(edge.src, edge.dst, edge.type, edge.inferred or place in inferred, reasons.get(place, edge.why))
        for place, edge in enumerate(edges)
    )


def _convert(value: Any, kind: type[T], what: str) -> T:
    try:
        return msgspec.convert(value, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        raise FormatError(f"{what} does not fit the survey's form: {error}.") from None


def _ride_off(events: list[dict[str, Any]]) -> tuple[Rider | None, list[dict[str, Any]]]:
    """Take Baton's own property off the first event, if it is there."""
    first = events[0]
    keys = [name for name in first if is_rider_key(name)]
    # Baton picks a longer name than any that is taken, so the longest is the one it wrote.
    key = max(keys, key=len, default="")
    value = first.get(key)
    if not isinstance(value, dict) or type(value.get("baton_version")) is not int:
        return None, events
    if value["baton_version"] > BATON_VERSION:
        raise FormatError(
            f"its {key!r} property is of version {value['baton_version']}; this Baton reads up to "
            f"{BATON_VERSION}. Type: {upgrade_hint()}"
        )
    rider = _convert(value, Rider, f"the {key!r} property of the first event")
    return rider, [{name: value for name, value in first.items() if name != key}, *events[1:]]


def _own_event(properties: dict[str, Any], place: int, shadows: dict[int, ShadowedFields]) -> Event:
    if place not in shadows and properties.keys() <= _ALL_FIELDS:
        return _event(properties, {}, place)
    shadow = shadows.get(place, _NO_SHADOW)
    fields: dict[str, Any] = {name: value for name, value in shadow.fields.items() if value is not None}
    extra = dict(shadow.extra)
    for name, value in properties.items():
        if name in SURVEY_FIELDS or (name in OWN_FIELDS and name not in shadow.fields):
            fields[name] = value
        else:
            extra[name] = value
    return _event(fields, extra, place)


def _foreign_events(events: list[dict[str, Any]], edges: Sequence[Edge]) -> list[Event]:
    made = []
    for place, properties in enumerate(events):
        fields: dict[str, Any] = {"seq": place}
        extra = {}
        for name, value in properties.items():
            if name in SURVEY_FIELDS or (name != "seq" and _fits(name, value)):
                fields[name] = value
            else:
                extra[name] = value
        made.append(_event(fields, extra, place))
    order = [event.extra.get("seq") for event in made]
    if _is_causal(order, made, edges):
        for event in made:
            del event.extra["seq"]
    else:
        for seq, place in enumerate(_order(made, edges)):
            order[place] = seq
    return [structs.replace(event, seq=seq) for event, seq in zip(made, order, strict=True)]


def _event(fields: dict[str, Any], extra: dict[str, Any], place: int) -> Event:
    return _convert({"kind": "event", **fields, "extra": extra}, Event, f"events[{place}]")


def _fits(name: str, value: Any) -> bool:
    """Whether a property is a field's value, and comes back from the field as it was."""
    if name not in _FIELD_TYPES or value is None:
        return False
    try:
        taken = msgspec.convert(value, _FIELD_TYPES[name])
    except msgspec.ValidationError:
        return False
    return bool((list(taken) if isinstance(taken, tuple) else taken) == value)


def _is_causal(order: Sequence[Any], events: Sequence[Event], edges: Sequence[Edge]) -> bool:
    """Whether a file's own `seq` means what Baton's does: one order of the whole that respects every edge."""
    if any(type(seq) is not int for seq in order) or len(set(order)) < len(order):
        return False
    seq_of = {event.id: seq for event, seq in zip(events, order, strict=True)}
    return all(
        seq_of[edge.src] < seq_of[edge.dst] for edge in edges if edge.src in seq_of and edge.dst in seq_of
    )


def _order(events: Sequence[Event], edges: Sequence[Edge]) -> list[int]:
    """Positions of events such that every edge goes forward; ties by time, then by position.

    Edges to unknown events do not count. With a cycle there is no such order: the file's own, then.
    """
    place_of = {event.id: place for place, event in reversed(list(enumerate(events)))}
    ends = [(place_of.get(edge.src, -1), place_of.get(edge.dst, -1)) for edge in edges]
    arrows = np.array([pair for pair in ends if min(pair) >= 0], dtype=np.int64).reshape(-1, 2)
    order = causal_order([event.t for event in events], arrows[:, 0], arrows[:, 1])
    return list(range(len(events))) if order is None else order


def _rewards(sums: dict[str, float], records: tuple[Reward, ...], trace_id: str) -> tuple[Reward, ...]:
    """The records behind the sums; a sum they do not explain becomes a record of its own."""
    explained = {name for name, value in reward_sums(records).items() if sums.get(name) == value}
    kept = tuple(reward for reward in records if reward.channel in explained)
    return kept + tuple(
        Reward(
            family=(family := _FAMILY_OF_CHANNEL.get(name, "hybrid")),
            unit="team",
            target=trace_id,
            value=value,
            name=None if name == family else name,
        )
        for name, value in sums.items()
        if name not in explained
    )
