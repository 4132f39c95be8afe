"""A tool's arguments as text and as an object: some dialects tell the one, some the other."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_NO_OBJECT = "_said"
"""What a model said in place of an object stands under this name, so that it comes back as it was."""


def as_object(text: str) -> dict[str, Any]:
    """The object that the text is; where it is none, one that holds the text."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        value = None
    return value if isinstance(value, dict) and set(value) != {_NO_OBJECT} else {_NO_OBJECT: text}


def as_text(value: dict[str, Any]) -> str:
    """The text of the object, as most models and servers put it."""
    if list(value) == [_NO_OBJECT] and isinstance(value[_NO_OBJECT], str):
        return str(value[_NO_OBJECT])
    return json.dumps(value, ensure_ascii=False)
