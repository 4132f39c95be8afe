"""A session's exchanges as conversations: what each ask repeats, from which answer it goes on, and what is new in it.

Messages are compared canonically: what a client may write in another way (ids, the order of keys, an answer in one
message or in two, thoughts that it drops) does not count. An instruction is no part of the conversation: the same
conversation under another instruction is a handoff, and has to be recognised.

Every message is hashed once for each time that it was sent; where the server says from which exchange an ask grew, only
what is new is. So reading is linear in what the program sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

from msgspec import Struct, field

from baton.serve.exchange import Exchange, Utterance

_BLANKS = re.compile(r"\s+")
_CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
_ALIKE = 0.8  # share of words that two forms of one instruction have in common


class Heard(Struct):
    """One exchange and its place among the others."""

    place: int
    exchange: Exchange
    system: str
    """The instruction: what the system says before anybody else speaks."""
    talk: tuple[Utterance, ...]
    """The rest of the ask; an answer that came in parts is one."""
    tools: frozenset[str]
    said: Utterance | None
    """What it was answered: of several answers, the one that the program went on with."""
    before: int | None = None
    """Place of the exchange whose conversation and answer this one begins with."""
    new: tuple[Utterance, ...] = ()
    """What stands after that answer; everything, where it grows from none."""
    fresh: bool = True
    """Nobody has answered or used a tool in it so far."""
    choice: int = 0
    """Which of that exchange's answers."""
    taken: int = 0
    """Which of its own answers the program went on with."""

    @property
    def id(self) -> str:
        return self.exchange.id

    @property
    def begun(self) -> float:
        return self.exchange.begun

    @property
    def ended(self) -> float:
        return self.exchange.begun + (self.exchange.duration_s or 0.0)


class _Ends(Struct):
    """Where conversations stand after each answer."""

    after: dict[bytes, list[int]] = field(default_factory=dict)
    """Hash of a conversation with its answer -> places of the exchanges that gave it."""
    of: dict[int, bytes] = field(default_factory=dict)
    choice: dict[tuple[bytes, int], int] = field(default_factory=dict)
    went_on: set[tuple[int, bytes]] = field(default_factory=set)


def read(exchanges: Sequence[Exchange]) -> list[Heard]:
    """All of a session, by arrival."""
    ordered = sorted(exchanges, key=lambda one: one.number)
    by_id = {one.id: place for place, one in enumerate(ordered)}
    ends = _Ends()
    heard: list[Heard] = []
    for place, exchange in enumerate(ordered):
        one = _heard(place, exchange)
        heard.append(one)
        state = _grow(one, heard, by_id, ends)
        for choice, answer in enumerate(() if exchange.reply is None else exchange.reply.choices):
            end = _further(state, answer.message)
            ends.after.setdefault(end, []).append(place)
            ends.choice.setdefault((end, place), choice)
    for one in heard:
        if one.before is not None and one.choice:  # the answer that the program took up
            origin = heard[one.before]
            if origin.exchange.reply is not None and one.choice < len(origin.exchange.reply.choices):
                origin.said = origin.exchange.reply.choices[one.choice].message
                origin.taken = one.choice
    return heard


def _heard(place: int, exchange: Exchange) -> Heard:
    messages = exchange.ask.messages
    start = 0
    while start < len(messages) and messages[start].speaker == "system":
        start += 1
    reply = exchange.reply
    return Heard(
        place=place,
        exchange=exchange,
        system="\n".join(message.text for message in messages[:start]),
        talk=messages[start:],
        tools=frozenset(tool.name for tool in exchange.ask.tools),
        said=None if reply is None or not reply.choices else reply.choices[0].message,
    )


def _grow(one: Heard, heard: list[Heard], by_id: dict[str, int], ends: _Ends) -> bytes:
    """Find what it grows from and what is new; gives the hash of its whole conversation."""
    named = by_id.get(one.exchange.grows_from or "")
    state = b""
    rest = 0
    if named is not None and named < one.place:
        rest, state = _after_named(one, heard[named], one.exchange.choice, ends)
        if rest:
            one.before, one.choice = _which(one, heard, ends, state), one.exchange.choice
            ends.went_on.add((one.before, state))
    one.talk = one.talk[:rest] + joined(one.talk[rest:])
    found: tuple[int, bytes] | None = None
    for place in range(rest, len(one.talk)):
        state = _further(state, one.talk[place])
        if one.talk[place].speaker == "assistant" and state in ends.after:
            found = (place + 1, state)
    if found is not None:
        rest, end = found
        one.before = _which(one, heard, ends, end)
        one.choice = ends.choice.get((end, one.before), 0)
        ends.went_on.add((one.before, end))
    one.new = one.talk[rest:]
    one.fresh = not any(message.speaker in ("assistant", "tool") for message in one.talk)
    ends.of[one.place] = state
    return state


def _after_named(one: Heard, before: Heard, choice: int, ends: _Ends) -> tuple[int, bytes]:
    """How many messages stand before what is new, and the hash up to there; 0 where the server's word does not fit."""
    reply = before.exchange.reply
    count = len(before.talk)
    if reply is None or choice >= len(reply.choices) or len(one.talk) <= count or one.system != before.system:
        return 0, b""
    if one.talk[count].speaker != "assistant" or one.talk[count - 1 : count] != before.talk[-1:]:
        return 0, b""
    if len(one.talk) > count + 1 and one.talk[count + 1].speaker == "assistant":
        return 0, b""
    return count + 1, _further(ends.of[before.place], reply.choices[choice].message)


def _which(one: Heard, heard: list[Heard], ends: _Ends, end: bytes) -> int:
    """Of exchanges with the same words: one under the same instruction, first one that nobody has gone on from."""
    places = ends.after[end]
    if len(places) == 1:
        return places[0]
    same = [place for place in places if heard[place].system == one.system] or places
    free = [place for place in same if (place, end) not in ends.went_on]
    return free[0] if free else same[-1]


def joined(messages: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """The same, with answers that came in parts as one message each."""
    if all(one.speaker != "assistant" or other.speaker != "assistant" for one, other in pairwise(messages)):
        return tuple(messages)
    made: list[Utterance] = []
    for message in messages:
        if message.speaker == "assistant" and made and made[-1].speaker == "assistant":
            last = made[-1]
            text = "\n".join(filter(None, (last.text, message.text)))
            made[-1] = Utterance(
                speaker="assistant", text=text, uses=(*last.uses, *message.uses), name=last.name
            )
        else:
            made.append(message)
    return tuple(made)


def _further(state: bytes, message: Utterance) -> bytes:
    uses = "\x1d".join(f"{use.name}\x1e{same_json(use.arguments)}" for use in message.uses)
    plain = f"{message.speaker}\x1f{message.text.strip()}\x1f{uses}"
    return blake2b(state + plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def same_json(text: str) -> str:
    """JSON with its keys in order and without blanks; what is none stays as it is."""
    if text in ("", "{}"):
        return text
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text.strip()


def plain(text: str) -> str:
    """A text with its blanks evened out."""
    return _BLANKS.sub(" ", text).strip()


@lru_cache(maxsize=64)
def _masked(system: str) -> tuple[str, frozenset[str]]:
    without = plain(_CHANGING.sub("#", system))
    return without, frozenset(without.split())


@lru_cache(maxsize=256)
def alike(one: str, other: str) -> bool:
    """Whether two instructions are one, but for times, numbers and a few words."""
    if one == other:
        return True
    (first, words), (second, others) = _masked(one), _masked(other)
    if first == second:
        return True
    if min(len(words), len(others)) < 20:
        return False
    return len(words & others) >= _ALIKE * len(words | others)


def texts(messages: Iterable[Utterance], *speakers: str) -> list[str]:
    """What these speakers say, blanks evened out, without what is empty."""
    found: list[str] = []
    for one in messages:
        if one.speaker in speakers:
            found += filter(None, (plain(one.text), *_sealed(one)))
    return found


def said_by(messages: Iterable[Utterance], *speakers: str) -> str:
    """What these speakers say, as they said it: for people to read, where `texts` is for comparing."""
    found = [(one.text, *_sealed(one)) for one in messages if one.speaker in speakers]
    return "\n".join(text for parts in found for text in parts if text.strip())


def _sealed(message: Utterance) -> Iterable[str]:
    """What Codex's agents tell each other: sealed for a server that could read it, plain for one that could not."""
    for part in message.others:
        content = part.get("content") if part.get("type") == "agent_message" else None
        for piece in content if isinstance(content, list) else ():
            sealed = piece.get("encrypted_content") if isinstance(piece, dict) else None
            if isinstance(sealed, str):
                yield plain(sealed)
