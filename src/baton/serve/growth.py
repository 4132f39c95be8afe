"""Which earlier exchange an ask grows from: the longest conversation of the session that it begins with.

Conversations are compared in a canonical form, because programs echo what a model said in their own way:

- the keys of JSON have no order, 1.0 is 1, arguments "" are {}; nothing, None and "" are the same;
- of what an assistant said, white space at either end, thoughts and the order of tools asked for at once do not count,
  nor whether it is one message or several in a row;
- ids of tool uses do not count, only which result answers which use; where several exchanges fit, ids decide;
- everything else is compared to the character, and the tools on offer, in their order, belong to the beginning.

Where a program edited an answer there is no match. Invariant: looking an ask up takes time in its own length, not in
the session's, because every conversation is kept under one hash of all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from baton.serve.backend import GrownAsk
from baton.serve.exchange import Ask, Exchange, ToolAsk, ToolOffer, Utterance

_SORTED = msgspec.json.Encoder(order="sorted").encode
_CANDIDATES = 64
"""Exchanges of one conversation that are looked at: a program may ask the same thing any number of times."""


class _Said(NamedTuple):
    """One answer that was given."""

    exchange: Exchange
    choice: int


class GrowthIndex:
    """The conversations of one session that an ask may grow from."""

    def __init__(self) -> None:
        self._ends: dict[int, list[_Said]] = {}
        self._grown: set[tuple[str, int]] = set()
        self._asked: OrderedDict[int, tuple[Ask, _Conversation]] = OrderedDict()
        """Conversations of asks that were looked up a moment ago, by where the ask is."""

    def add(self, exchange: Exchange, asked: Ask | None = None) -> None:
        """An exchange was answered: whoever holds its answer may go on from it.

        `asked` is the ask that `find` was given, if it was: what was hashed then is not hashed again.
        """
        if exchange.grows_from is not None:
            self._grown.add((exchange.grows_from, exchange.choice))
        if exchange.reply is None:
            return
        conversation = self._conversation(asked or exchange.ask)
        for number, choice in enumerate(exchange.reply.choices):
            told = conversation.copy()
            told.add(choice.message)
            fit = self._ends.setdefault(told.hash(), [])
            fit.append(_Said(exchange, number))
            del fit[:-_CANDIDATES]

    def find(self, ask: Ask, headers: Mapping[str, str] | None = None) -> GrownAsk | None:
        """The exchange whose prompt and answer are the longest beginning of `ask`, with something after them.

        Where several are alike: the one whose ids of tool uses came back, then one asked under the same `headers`, then
        one that nobody has gone on from, then the first. It counts as gone on from, so that of two agents with the same
        words each has a chain of its own.
        """
        conversation = _Conversation(ask.tools)
        ends: list[tuple[int, int]] = []
        for place, message in enumerate(ask.messages, start=1):
            conversation.add(message)
            if message.speaker == "assistant":
                ends.append((place, conversation.hash()))
        self._asked[id(ask)] = ask, conversation
        if len(self._asked) > _CANDIDATES:
            self._asked.popitem(last=False)
        for end, told in reversed(ends):
            fit = self._ends.get(told) if end < len(ask.messages) else None
            if fit:
                echoed = ask.messages[:end]
                said = max(fit, key=lambda each: self._likeness(each, echoed, headers or {}))
                self._grown.add((said.exchange.id, said.choice))
                return GrownAsk(before=said.exchange, choice=said.choice, new=ask.messages[end:])
        return None

    def _conversation(self, ask: Ask) -> _Conversation:
        """The hash of an ask's messages; one that was looked up has it already."""
        known = self._asked.pop(id(ask), None)
        if known is not None and known[0] is ask:
            return known[1]
        conversation = _Conversation(ask.tools)
        for message in ask.messages:
            conversation.add(message)
        return conversation

    def _likeness(
        self, said: _Said, echoed: Sequence[Utterance], headers: Mapping[str, str]
    ) -> tuple[bool, int, bool]:
        reply = said.exchange.reply
        assert reply is not None
        own = {use.id for use in reply.choices[said.choice].message.uses}
        same = sum(headers.get(name) == value for name, value in said.exchange.headers.items())
        came_back = bool(own) and own <= {use.id for use in _last_run(echoed)}
        return came_back, same, (said.exchange.id, said.choice) not in self._grown


def how_echoed(ask: Ask, growth: GrownAsk) -> str | None:
    """In which harmless ways the program's echo of the answer differs from what was said; None: in none."""
    reply = growth.before.reply
    assert reply is not None
    said = reply.choices[growth.choice].message
    run = _run_before(ask, growth)
    if len(run) > 1:
        return "several messages for one"
    echo = run[0]
    if echo == said:
        return None
    ways = {
        "white space": echo.text != said.text,
        "thinking": echo.thinking != said.thinking or echo.sign != said.sign,
        "ids": {use.id for use in echo.uses} != {use.id for use in said.uses},
        "arguments": sorted(u.arguments for u in echo.uses) != sorted(u.arguments for u in said.uses),
        "order of tools": [u.name for u in echo.uses] != [u.name for u in said.uses],
        "name": echo.name != said.name,
    }
    return ", ".join(way for way, differs in ways.items() if differs) or "order of tools"


def _run_before(ask: Ask, growth: GrownAsk) -> Sequence[Utterance]:
    """The assistant's messages in a row that echo the answer."""
    end = len(ask.messages) - len(growth.new)
    start = end - 1
    asked = len(growth.before.ask.messages)
    while start > asked and ask.messages[start - 1].speaker == "assistant":
        start -= 1
    return ask.messages[start:end]


def _last_run(messages: Sequence[Utterance]) -> Iterator[ToolAsk]:
    for message in reversed(messages):
        if message.speaker != "assistant":
            return
        yield from message.uses


class _Conversation:
    """The hash of a conversation as it grows, message by message.

    What an assistant says is a row of atoms (a text, uses in sorted order), whatever messages it is cut into. Uses are
    numbered through the conversation, and a result is known by the number of its use.

    Hashes are Python's own, of 61 bits and keyed by the process: they are never written down, long conversations are
    hashed at every call, and among a million answers a false match has a chance of one in a million millions.
    """

    def __init__(self, tools: Sequence[ToolOffer]) -> None:
        self._base = _tools_hash(tools)
        self._open: list[tuple[tuple[str, bytes], str]] = []
        """Uses of the assistant's turn that is under way: canonical words, and the id."""
        self._speaking = False
        self._spoke = False
        """Whether that turn has said anything yet."""
        self._numbers: dict[str, int] = {}
        self._uses = 0

    def copy(self) -> _Conversation:
        other = _Conversation(())
        other._base, other._speaking, other._spoke = self._base, self._speaking, self._spoke
        other._open, other._numbers, other._uses = list(self._open), dict(self._numbers), self._uses
        return other

    def add(self, message: Utterance) -> None:
        speaker = message.speaker
        if speaker != "assistant":
            base = self.hash() if self._speaking else self._base
            if self._open:
                self._number()
            self._speaking = self._spoke = False
            kind = "failed" if message.failed else speaker
            who = self._answered(message) if speaker == "tool" else message.name or ""
            self._base = hash((base, kind, message.text, who, *_others(message.others)))
            return
        self._speaking = True
        text = message.text.strip()
        if text or message.others:
            if self._open:
                self._base = self.hash()
                self._number()
            self._base = hash((self._base, "says", text, *_others(message.others)))
            self._spoke = True
        for use in message.uses:
            self._open.append(((use.name, canonical_json(use.arguments)), use.id))
            self._spoke = True

    def hash(self) -> int:
        """Of everything so far."""
        if self._speaking and not self._spoke:
            return hash((self._base, "says nothing"))
        found = self._base
        for use, _ in sorted(self._open) if self._open else ():
            found = hash((found, "uses", use))
        return found

    def _number(self) -> None:
        for _, name in sorted(self._open, key=lambda use: use[0]):
            self._numbers[name] = self._uses
            self._uses += 1
        self._open = []

    def _answered(self, message: Utterance) -> str | int:
        """Which use a tool's result answers: by its number, or by an id that nothing before it has."""
        answers = message.answers or ""
        return self._numbers.get(answers, answers)


def canonical_json(text: str) -> bytes:
    """Arguments in one form however they were written; what is no JSON stays as it is."""
    stripped = text.strip()
    try:
        return _SORTED(_plain(msgspec.json.decode(stripped or "{}")))
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return _bytes(stripped)


def _plain(value: Any) -> Any:
    """JSON with one way to write a number."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _tools_hash(tools: Sequence[ToolOffer]) -> int:
    return hash(tuple(map(_offer, tools))) if tools else 0


def _offer(tool: ToolOffer) -> tuple[str, str, bytes, bytes]:
    raw = b"" if tool.raw is None else _json(_unmarked(tool.raw))
    return tool.name, tool.description, _json(tool.parameters), raw


def _others(parts: Sequence[dict[str, Any]]) -> Sequence[bytes]:
    return [_json(_unmarked(part)) for part in parts] if parts else ()


def _unmarked(part: dict[str, Any]) -> dict[str, Any]:
    """Without the mark of where a server may cache, which programs move along as a conversation grows."""
    return {name: value for name, value in part.items() if name != "cache_control"}


def _json(value: Any) -> bytes:
    try:
        return _SORTED(value)
    except (UnicodeEncodeError, TypeError):
        return _bytes(repr(value))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
