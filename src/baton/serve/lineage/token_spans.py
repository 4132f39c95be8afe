"""Which tokens of a completion said what: the text of each tool ask, and the answer itself, as ranges of tokens.

The sampled text is read, not the parsed one: a tool ask stands in it from the end of what came before to the end of its
arguments, with whatever marks a model family puts around it.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from baton.serve.exchange import ReplyChoice, ToolAsk

Range = tuple[int, int]
_CLOSING = (
    "</parameter>",
    "</tool_call>",
    "</function>",
    "</invoke>",
    "<|tool_call_end|>",
    "<|eom_id|>",
    "}",
    "]",
    ")",
    ",",
    "```",
)
_DECODER = json.JSONDecoder()


def use_spans(choice: ReplyChoice) -> list[Range | None]:
    """Tokens of each tool ask, in order; None where the text or its tokens are not known."""
    uses = choice.message.uses
    if choice.said is None or choice.token_ends is None or not uses:
        return [None] * len(uses)
    return [
        _tokens(choice.token_ends, found) for found in _use_ranges(choice.said, uses, choice.message.text)
    ]


def answer_span(choice: ReplyChoice) -> Range | None:
    """Tokens of the answer's text, without thoughts before it and marks after it."""
    if choice.said is None or choice.token_ends is None or not len(choice.token_ends):
        return None
    text = choice.message.text.strip()
    at = choice.said.rfind(text) if text else -1
    found = (at, at + len(text)) if at >= 0 else (0, len(choice.said))
    return _tokens(choice.token_ends, found)


def _use_ranges(said: str, uses: Sequence[ToolAsk], text: str) -> list[Range | None]:
    words = text.strip()
    at = said.find(words) + len(words) if words and words in said else 0
    found: list[Range | None] = []
    for place, use in enumerate(uses):
        name = said.find(use.name, at)
        if name < 0:
            found.append(None)
            continue
        start = at
        while start < name and said[start].isspace():
            start += 1
        later = said.find(uses[place + 1].name, name + len(use.name)) if place + 1 < len(uses) else len(said)
        end = _end(said, name + len(use.name), len(said) if later < 0 else later, use.arguments)
        found.append((start, end))
        at = end
    return found


def _end(said: str, start: int, limit: int, arguments: str) -> int:
    """Where a tool ask ends: after its arguments and what closes it."""
    end = _arguments_end(said, start, limit, arguments)
    while end < len(said):
        rest = said[end:].lstrip()
        mark = next((mark for mark in _CLOSING if rest.startswith(mark)), None)
        if mark is None:
            break
        end = len(said) - len(rest) + len(mark)
    return end


def _arguments_end(said: str, start: int, limit: int, arguments: str) -> int:
    """After the JSON that the arguments are; else, in forms that are none, after the last of their values."""
    try:
        wanted = json.loads(arguments)
    except (ValueError, RecursionError):
        wanted = arguments
    end, opening = start, said.find("{", start)
    if 0 <= opening < limit:
        try:
            value, end = _DECODER.raw_decode(said, opening)
        except (ValueError, RecursionError):
            end = limit
        else:
            if value == wanted:
                return end
    values = wanted.values() if isinstance(wanted, dict) else (wanted,)
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    last = start
    for text in texts:
        found = said.find(text, last)
        last = found + len(text) if found >= 0 else last
    return last if last > start else end


def _tokens(ends: Sequence[int], found: Range | None) -> Range | None:
    """The tokens that have any of these characters."""
    if found is None or not len(ends):
        return None
    first = bisect_right(ends, found[0])
    last = bisect_left(ends, found[1])
    last = min(last, len(ends) - 1)
    return (first, last + 1) if first <= last else None
