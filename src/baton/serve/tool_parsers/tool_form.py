"""What a form of asking for tools has to offer, and what all forms share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct, field

from baton.serve.exchange import ToolAsk, ToolOffer


class ToolWords(NamedTuple):
    """A tool that a model asks for, before it has an id."""

    name: str
    arguments: str
    """JSON as it was said."""


class ReadTools(NamedTuple):
    """What was read out of a completion."""

    text: str
    """What is left beside the tools."""
    asked: list[ToolWords]


class ToolParser(Protocol):
    """One form of asking for tools."""

    name: str

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:
        """What a completion asks for; it never fails."""
        ...

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        """The words that tell a model of the tools, for templates that know none."""
        ...

    def write(self, uses: Sequence[ToolAsk]) -> str:
        """What asking for these looks like, for templates that know no tools."""
        ...


class _JsonCall(Struct):
    """The usual JSON of a call."""

    name: str
    arguments: Raw = field(default_factory=Raw)
    parameters: Raw = field(default_factory=Raw)


_decoder = msgspec.json.Decoder(_JsonCall | list[_JsonCall])


def json_calls(text: str) -> list[ToolWords] | None:
    """The calls in a text that is a JSON object with `name` and `arguments` or `parameters`, or a list of them."""
    try:
        found = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    return [
        ToolWords(call.name, _arguments(call)) for call in (found if isinstance(found, list) else [found])
    ]


def _arguments(call: _JsonCall) -> str:
    text = (bytes(call.arguments) or bytes(call.parameters)).decode() or "{}"
    if text.startswith('"'):  # some models put the object into a string
        inner = msgspec.json.decode(text, type=str)
        return inner if inner.lstrip().startswith("{") else text
    return text if text != "null" else "{}"


def offered(asked: Sequence[ToolWords], tools: Sequence[ToolOffer]) -> bool:
    """Whether all of these are on offer: what bears no mark of a call is one only then."""
    names = {tool.name for tool in tools}
    return bool(asked) and all(each.name in names for each in asked)


def as_json(tool: ToolOffer) -> str:
    """An offer on one line."""
    made = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return msgspec.json.encode(made).decode()
