"""What a model was asked and what it answered, word for word, for people who want to see why it did what it did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from baton.errors import CorruptError
from baton.trace.records import Call
from baton.trace.trace import Trace
from baton.view.text import count, printable


def call_rows(trace: Trace, call: Call) -> Iterator[tuple[str, str]]:
    """Rows of text with their styles: the part of the prompt that is new, speaker by speaker, and the answer."""
    grown = f", after all of {printable(call.parent)}" if call.parent is not None else ""
    failed = f", {printable(call.finish_reason)}" if call.finish_reason not in (None, "stop") else ""
    drawn = f"; drawn by {_versions(call)}" if call.versions else ""
    yield f"asked ({printable(call.id)}{grown}{failed}{drawn})", "bold"
    for speaker, text in _entries(trace, call):
        yield from _spoken(speaker, text)
    answer = _text(trace, call.completion_ref)
    if answer is not None:
        yield from _spoken("answer", answer)
    elif call.finish_reason != "error":
        yield f"  answer: {_unkept(call.completion_ids, call.completion_tokens)}", "dim"


def _versions(call: Call) -> str:
    first, *rest = call.versions or ()
    told = [f"{printable(first.version)} up to token {first.end:,}"]
    return ", ".join(told + [f"{printable(span.version)} up to {span.end:,}" for span in rest])


def _spoken(speaker: str, text: str) -> Iterator[tuple[str, str]]:
    first, *rest = text.splitlines() or [""]
    style = "green" if speaker == "answer" else ""
    yield f"  {printable(speaker)}: {printable(first)}", style
    for row in rest:
        yield f"    {printable(row)}", style


def _entries(trace: Trace, call: Call) -> list[tuple[str, str]]:
    text = _text(trace, call.prompt_ref)
    if text is None:
        return [("prompt", _unkept(call.prompt_ids, call.prompt_tokens))]
    try:
        found: Any = json.loads(text)
        return [(str(entry["speaker"]), str(entry["text"])) for entry in found]
    except (ValueError, TypeError, KeyError):  # another system's, as it came
        return [("prompt", text)]


def _unkept(ids: Any, tokens: int | None) -> str:
    size = tokens if tokens is not None else len(ids) if ids is not None else None
    return "(its text was not kept" + ("" if size is None else f"; {count(size, 'token')}") + ")"


def _text(trace: Trace, ref: str | None) -> str | None:
    try:
        return trace.text(ref)
    except CorruptError:
        return "(altered content)"
