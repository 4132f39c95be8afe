"""Where words stand in what was said in a trace: in its events, and in the prompts and completions behind them.

Capital letters and runs of white space do not matter; the words have to stand together. A text that several events
show is found at each of them; what a call was told and what it answered belong to the first event it carried out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from baton.errors import BatonError, UsageError
from baton.trace.trace import Trace

_AROUND = 60
_MOST_CHARACTERS = 500


class Hit(Struct, frozen=True, kw_only=True):
    """Words found in one text of one event."""

    at: int
    """The row of the event."""
    where: str
    """said, prompt or answer."""
    times: int
    excerpt: tuple[str, str, str]
    """What stands before the first place, the words there, and what stands after."""


class _Entry(Struct):
    text: str = ""


_ENTRIES = msgspec.json.Decoder(list[_Entry])


def matcher(words: str) -> re.Pattern[str]:
    """What finds these words. Raises `UsageError` where there are none."""
    parts = words.split()
    if not parts or len(words) > _MOST_CHARACTERS:
        raise UsageError(
            f"{len(words)} characters were given to search for; expected 1 to {_MOST_CHARACTERS}."
        )
    return re.compile(r"\s+".join(map(re.escape, parts)), re.IGNORECASE)


def texts_of(trace: Trace) -> Iterator[str]:
    """Every text in which words are looked for, each once."""
    seen = set()
    for _, where, ref in _texts(trace):
        name = (where == "prompt", ref)
        if name not in seen:
            seen.add(name)
            yield _text(trace, ref, prompt=where == "prompt")


def hits_in(trace: Trace, words: re.Pattern[str]) -> list[Hit]:
    """Every text with the words in it, by the event it belongs to."""
    seen: dict[str, tuple[int, tuple[str, str, str]] | None] = {}
    found = []
    for at, where, ref in _texts(trace):
        name = f"{where == 'prompt'} {ref}"
        if name not in seen:
            seen[name] = _found(_text(trace, ref, prompt=where == "prompt"), words)
        if (one := seen[name]) is not None:
            found.append(Hit(at=at, where=where, times=one[0], excerpt=one[1]))
    return found


def _texts(trace: Trace) -> Iterator[tuple[int, str, str]]:
    called: set[str] = set()
    for at, event in enumerate(trace.events):
        if event.content_ref is not None:
            yield at, "said", event.content_ref
        call = trace.call_by_id.get(event.call) if event.call and event.call not in called else None
        if call is None:
            continue
        called.add(call.id)
        if call.prompt_ref is not None:
            yield at, "prompt", call.prompt_ref
        if call.completion_ref is not None and call.completion_ref != event.content_ref:
            yield at, "answer", call.completion_ref


def _text(trace: Trace, ref: str, *, prompt: bool) -> str:
    try:
        text = trace.text(ref) or ""
    except BatonError:  # it was damaged: the page of the trace says so
        return ""
    if not prompt:
        return text
    try:
        return "\n\n".join(entry.text for entry in _ENTRIES.decode(text))
    except msgspec.DecodeError:
        return text


def _found(text: str, words: re.Pattern[str]) -> tuple[int, tuple[str, str, str]] | None:
    first = words.search(text)
    if first is None:
        return None
    start, end = first.span()
    cut = min(end, start + 2 * _AROUND)
    excerpt = (text[max(0, start - _AROUND) : start], text[start:cut], text[cut : cut + _AROUND])
    return sum(1 for _ in words.finditer(text)), excerpt
