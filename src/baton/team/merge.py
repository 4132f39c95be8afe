"""Merging structured parts: what several agents found, put together without loss.

JSON objects are merged key by key and inwards, JSON lists are joined, anything else is joined line
by line; what is there already is not repeated. Invariant: every leaf of every part is in the result
or in the list of conflicts, and merging a part with itself changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from baton.team.surface.parsed import decode_json

__all__ = ["merge"]


def merge(
    parts: Sequence[tuple[str, str]],
) -> tuple[str, Literal["object", "list", "lines"], list[dict[str, Any]]]:
    """Merge (agent, text) in order: the text, how the parts were read, and what did not fit."""
    values = [_decoded(text) for _, text in parts]
    conflicts: list[dict[str, Any]] = []
    if all(isinstance(value, dict) for value in values):
        merged: dict[str, Any] = {}
        for (agent, _), value in zip(parts, values, strict=True):
            _into(merged, value, "", agent, conflicts)
        return _json(merged), "object", conflicts
    if all(isinstance(value, list) for value in values):
        return _json(_joined([item for value in values for item in value])), "list", conflicts
    lines = dict.fromkeys(line.rstrip() for _, text in parts for line in text.splitlines() if line.strip())
    return "\n".join(lines), "lines", conflicts


def _into(
    merged: dict[str, Any], new: dict[str, Any], path: str, agent: str, conflicts: list[dict[str, Any]]
) -> None:
    for key, value in new.items():
        if key not in merged:
            # A copy: what is merged into it later must not reach back into the part it came from.
            merged[key] = value
            if isinstance(value, dict):
                merged[key] = {}
                _into(merged[key], value, f"{path}/{key}", agent, conflicts)
            elif isinstance(value, list):
                merged[key] = _joined(value)
            continue
        kept = merged[key]
        if isinstance(kept, dict) and isinstance(value, dict):
            _into(kept, value, f"{path}/{key}", agent, conflicts)
        elif isinstance(kept, list) and isinstance(value, list):
            merged[key] = _joined(kept + value)
        elif _json(kept) != _json(value):
            conflicts.append({"path": f"{path}/{key}", "agent": agent, "kept": kept, "dropped": value})


def _joined(items: list[Any]) -> list[Any]:
    """Without repeats, in order. By their JSON: to Python, 1 and True are the same."""
    seen: dict[str, Any] = {}
    for item in items:
        seen.setdefault(_json(item), item)
    return list(seen.values())


def _decoded(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
