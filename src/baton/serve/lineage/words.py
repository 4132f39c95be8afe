"""Whether words of one conversation stand in another: arguments in a task, an answer in a result.

What a tool was asked stands in the prompt of the agent that it ran: as it is, as one value of its JSON, inside a
template, or in pieces. An answer stands so in the tool's result. How much of the one is found in the other is the
strength of the evidence; a few letters are none by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from baton.serve.lineage.reading import plain

SHORT = 8
"""Fewer characters than this stand in many texts by chance."""
EXACT = 1.0
_PARTLY = 0.45
_REMEMBERED = 2048  # characters of arguments that are worth keeping
_END = 256  # words at each end of a long text
_MOST = 64  # texts of one JSON that are compared
_WINDOW = 4  # words by which texts are found again


def values(arguments: str) -> tuple[str, ...]:
    """The texts in a tool's arguments, each once, the longest of them first: what stands in its JSON, or all of it."""
    return _known_values(arguments) if len(arguments) <= _REMEMBERED else _values(arguments)


def _values(arguments: str) -> tuple[str, ...]:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = arguments
    found = dict.fromkeys(filter(None, map(plain, _leaves(parsed, 0))))
    return tuple(sorted(found, key=lambda text: (-len(text), text))[:_MOST])


_known_values = lru_cache(maxsize=4096)(_values)


def _leaves(value: Any, depth: int) -> Iterable[str]:
    if isinstance(value, str):
        if depth < 8 and value[:1] in ("{", "["):  # JSON inside JSON
            try:
                inner = json.loads(value)
            except (ValueError, RecursionError):
                inner = None
            if isinstance(inner, dict | list):
                yield value
                yield from _leaves(inner, depth + 1)
                return
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict) and depth < 8:
        for each in value.values():
            yield from _leaves(each, depth + 1)
    elif isinstance(value, list) and depth < 8:
        for each in value:
            yield from _leaves(each, depth + 1)


def likeness(asked: tuple[str, ...], told: Iterable[str]) -> float:
    """How well what a tool was asked fits what an agent was told: 1 is word for word, 0 is nothing in common."""
    best = 0.0
    for text in told:
        for value in asked:
            if value == text:
                return EXACT
            best = max(best, _held(value, text))
        if best < 0.9 and len(asked) > 1:
            inside = [value for value in asked if len(value) > 1 and _stands_in(value, text)]
            share = sum(map(len, inside)) / max(1, sum(map(len, asked)))
            if len(inside) > 1:
                best = max(best, 0.5 + 0.4 * share)
    return best


def _held(value: str, text: str) -> float:
    """The one stands in the other, whole."""
    short, long = (value, text) if len(value) <= len(text) else (text, value)
    if not short or not _stands_in(short, long):
        return 0.0
    share = len(short) / len(long)
    if len(short) < SHORT:
        return 0.1 + 0.3 * share
    return 0.5 + 0.4 * share


def _stands_in(short: str, long: str) -> bool:
    """As whole words."""
    at = long.find(short)
    while at >= 0:
        end = at + len(short)
        if not (at and long[at - 1].isalnum() and short[0].isalnum()) and not (
            end < len(long) and long[end].isalnum() and short[-1].isalnum()
        ):
            return True
        at = long.find(short, at + 1)
    return False


def heard_in(answer: Iterable[str], results: Iterable[str]) -> float:
    """How well an answer, by any of its texts, fits what somebody was given."""
    best = 0.0
    wanted = [text for text in answer if text]
    for result in results:
        for value in (result, *values(result)) if result[:1] in ("{", "[", '"') else (result,):
            for text in wanted:
                if text == value:
                    return EXACT
                best = max(best, _held(text, value))
        if not best:
            best = max((_overlap(text, result) for text in wanted), default=0.0)
    return best


def _overlap(text: str, value: str) -> float:
    """Words in a row that both have, where each has some that the other has not: an answer cut off and wrapped."""
    one, other = set(windows(text)), set(windows(value))
    least = min(len(one), len(other))
    return _PARTLY if least > 1 and len(one & other) >= 0.5 * least else 0.0


def windows(text: str) -> list[str]:
    """Every few words of a text, in a row, by which it is found again; of a long one those at its ends."""
    words = text.split()
    if len(words) > 2 * _END:
        words = [*words[:_END], *words[-_END:]]
    if len(words) <= _WINDOW:
        return [text] if text else []
    found = [" ".join(words[at : at + _WINDOW]) for at in range(len(words) - _WINDOW + 1)]
    return list(dict.fromkeys(found))
