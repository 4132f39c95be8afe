"""How a request put what its ask says, kept beside the ask so that the same request can be sent again.

An ask has one form for what three dialects say in many: a text in one part or in three, a mark where a cache may end,
an item's id. Such wording is kept for each field and each message whose plain writing differs from what came, with a
digest of what it says. So a request that is sent on is the request that came; and where somebody changed the ask (a
fork puts another answer into the conversation), what was changed is written plainly and the rest stays as it was.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from baton.serve.dialects.fields import without_nulls
from baton.serve.exchange import Ask, Utterance

Item = dict[str, Any]
Write = Callable[[Sequence[Utterance]], list[Item]]
"""Messages as the plain form of the dialect says them."""


class Unit(Struct, frozen=True, kw_only=True, gc=False):
    """Items of a request that are read together, and the messages (one at least) they are read as."""

    items: list[Item]
    says: tuple[Utterance, ...]
    plain: bool = False
    """It is known, without writing it, that what it says is written as it came."""


def digest(value: Any) -> str:
    """A short name for what is said."""
    return blake2b(msgspec.json.encode(value), digest_size=9).hexdigest()


def worded_messages(units: Sequence[Unit], write: Write) -> list[dict[str, Any]]:
    """The wording of every unit that is not written plainly; of all, where only all together give what came."""
    if all(unit.plain for unit in units):  # most are, and long conversations are read again and again
        return []
    said = [message for unit in units for message in unit.says]
    came = [item for unit in units for item in unit.items]
    if write(said) == came:
        return []
    kept = [_kept(unit) for unit in units if not _same(write(unit.says), unit.items)]
    return kept if _same(rewritten(said, kept, write), came) else [_kept(unit) for unit in units]


def _same(one: Any, other: Any) -> bool:
    """Whether they differ in nothing but nulls."""
    return bool(one == other) or bool(without_nulls(one) == without_nulls(other))


def _kept(unit: Unit) -> dict[str, Any]:
    return {"says": digest(unit.says), "messages": len(unit.says), "items": unit.items}


def rewritten(messages: Sequence[Utterance], kept: Sequence[Mapping[str, Any]], write: Write) -> list[Item]:
    """The messages as items: in the wording that is kept for what they say, otherwise plainly."""
    known: dict[tuple[int, str], deque[list[Item]]] = defaultdict(deque)
    for each in kept:
        known[each["messages"], each["says"]].append(each["items"])
    items: list[Item] = []
    sizes = sorted({size for size, _ in known}, reverse=True)
    plain: list[Utterance] = []
    place = 0
    while place < len(messages):
        found = None
        for size in sizes:
            if place + size <= len(messages):
                found = known.get((size, digest(tuple(messages[place : place + size]))))
                if found:
                    break
        if found:
            items += write(plain) if plain else []
            items += found.popleft()
            plain, place = [], place + size
        else:
            plain.append(messages[place])
            place += 1
    return items + (write(plain) if plain else [])


def before_wording(before: Sequence[Utterance]) -> dict[str, Any]:
    """What a request leaves to an earlier answer that it names."""
    return {"messages": len(before), "says": digest(tuple(before))}


def after(messages: Sequence[Utterance], before: Mapping[str, Any] | None) -> list[Utterance] | None:
    """What a request itself has to say, if the answer that it names still says the rest; None: it has to say all."""
    if before is None or digest(tuple(messages[: before["messages"]])) != before["says"]:
        return None
    return list(messages[before["messages"] :])


def worded_fields(
    body: Mapping[str, Any], plain: Mapping[str, Any], ask: Ask, parts: Mapping[str, tuple[str, ...]]
) -> dict[str, list[Any]]:
    """For each field that is not written plainly: a digest of the parts of the ask it tells, and what came."""
    names = [name for name in parts if not _same(body.get(name), plain.get(name))]
    return {name: [_part(ask, parts[name]), body.get(name)] for name in names}


def rewritten_fields(ask: Ask, plain: dict[str, Any], parts: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The plain fields, in the wording that is kept for what they say."""
    fields = dict(plain)
    for name, (says, value) in ask.wording.get("fields", {}).items():
        if name in parts and _part(ask, parts[name]) == says:
            fields.pop(name, None)
            if value is not None:
                fields[name] = value
    return fields


def _part(ask: Ask, names: tuple[str, ...]) -> str:
    return digest([getattr(ask, name) for name in names])
