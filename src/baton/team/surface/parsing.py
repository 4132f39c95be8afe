"""What a surface is, and what it makes of a completion's text.

Invariant of every surface: `parse` never raises, takes time linear in the text, and returns at
least one item; the spans of its items lie inside the text, in order, and do not overlap.
`parse(render(action), verbs)` gives exactly `action` back wherever its verb is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from baton.team.action import Action

MAX_NESTING = 64
"""Arguments nested deeper than this are refused: whoever encodes them later must not run out of stack."""


class Parsed(Struct, frozen=True):
    """An action, and the characters of the completion that said it."""

    action: Action
    start: int
    end: int


class ParseError(Struct, frozen=True):
    """Text that meant to be an action and is none. The model sees the message."""

    message: str
    start: int
    end: int


class ToolSpec(Protocol):
    """What a surface needs to know of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> dict[str, Any]: ...


class Surface(Protocol):
    """A way of writing actions as text."""

    @property
    def name(self) -> str: ...

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        """Every action in a completion, in order; errors stand where the action would have."""
        ...

    def render(self, action: Action) -> str:
        """The text that parses to this action."""
        ...

    def describe(self, verbs: frozenset[str], tools: Sequence[ToolSpec]) -> str:
        """The help text for the system prompt."""
        ...

    def schemas(
        self, verbs: frozenset[str], roles: Sequence[str], tools: Sequence[ToolSpec]
    ) -> tuple[dict[str, Any], ...]:
        """The same help as OpenAI tool schemas; empty where the surface does not use them."""
        ...


def clip(text: str, limit: int = 80) -> str:
    """`text` short enough to quote back at a model."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def listed(verbs: frozenset[str]) -> str:
    """The allowed verbs, for a message."""
    return ", ".join(sorted(verbs)) or "none"


def encode_json(value: object) -> str:
    """A value as compact JSON."""
    return msgspec.json.encode(value).decode()


def decode_json(raw: str) -> Any:
    """Decode JSON, or raise ValueError with a message fit for a model, whatever the text."""
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_NESTING} levels") from None
    except UnicodeError:
        raise ValueError("it holds characters that are not valid Unicode") from None
    except msgspec.DecodeError as error:
        reason = str(error)
        raise ValueError("it ends too early" if "truncated" in reason else reason) from None
    if raw.count("[") + raw.count("{") > MAX_NESTING and _depth(value) > MAX_NESTING:
        raise ValueError(f"it is nested deeper than {MAX_NESTING} levels")
    return value


def _depth(value: Any) -> int:
    """Levels of nesting, without recursion, counted no further than one past the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_NESTING:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        depth += any(isinstance(item, (dict, list)) for item in level)
        level = inner
    return depth
