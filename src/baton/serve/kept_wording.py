"""The wording of asks in a journal: every piece once, under its digest, and of a conversation that grew only the new.

A program words its whole conversation anew in every call. What does not change (tools with their marks, messages of
before) is a reference of a few bytes, so that a session's journal grows with what is said and not with its square.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, field

from baton.serve.session_keys import canonical_bytes, digest_of

_MESSAGES = "messages"


class PackedWording(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an ask was worded, by digest."""

    same: int = 0
    """How many of the messages' pieces, from the first, are those of the exchange that it grows from."""
    messages: tuple[str, ...] = ()
    """The others."""
    rest: dict[str, str] = field(default_factory=dict)
    """Each other part of the wording."""
    new: dict[str, Any] = field(default_factory=dict)
    """Pieces that no line before this one has."""


def pack(wording: Mapping[str, Any], known: Mapping[str, Any], before: Sequence[str]) -> PackedWording | None:
    """`known`: the pieces that the journal has; `before`: the messages' of the exchange that this one grows from."""
    if not wording:
        return None
    pieces = {digest_of(canonical_bytes(piece)): piece for piece in wording.get(_MESSAGES, ())}
    keys = [digest_of(canonical_bytes(piece)) for piece in wording.get(_MESSAGES, ())]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(keys, before, strict=False)))
    rest = {}
    for name, part in wording.items():
        if name != _MESSAGES:
            rest[name] = digest_of(canonical_bytes(part))
            pieces[rest[name]] = part
    new = {key: piece for key, piece in pieces.items() if key not in known}
    return PackedWording(same=same, messages=tuple(keys[same:]), rest=rest, new=new)


def unpack(
    packed: PackedWording, known: Mapping[str, Any], before: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """The wording, and the digests of its messages' pieces. `known` has the line's own pieces already."""
    keys = [*before[: packed.same], *packed.messages]
    wording: dict[str, Any] = {_MESSAGES: [known[key] for key in keys]} if keys else {}
    return wording | {name: known[key] for name, key in packed.rest.items()}, keys
