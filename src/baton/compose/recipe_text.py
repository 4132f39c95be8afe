"""Parts of a recipe as lines of TOML, with comments that say what they rest on."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from msgspec import json

from baton.settings import plain

_COLUMNS = 80


def comment(text: str) -> list[str]:
    """A text as comment lines."""
    return [f"# {line}" for line in textwrap.wrap(one_line(text), _COLUMNS - 2, break_on_hyphens=False)]


def one_line(text: str) -> str:
    """Text of a trace as one line that no comment can be broken out of."""
    return "".join(c if c.isprintable() else " " for c in text)


def toml_value(value: Any) -> str:
    """A value as TOML has it: tables inline, the rest as in JSON."""
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.encode(value).decode()


def toml_key(key: str) -> str:
    """A key, quoted where it has to be."""
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else json.encode(key).decode()


def pairs(table: Mapping[str, Any]) -> list[str]:
    """A table's lines."""
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]


def changed(part: Any, usual: Any) -> dict[str, Any]:
    """A part of a recipe, where it is not as usual."""
    default = plain(usual)
    return {key: value for key, value in plain(part).items() if value != default.get(key)}
