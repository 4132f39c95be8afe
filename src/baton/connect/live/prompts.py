"""Prompts as a trace keeps them: what is new since the call they grow from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

Entries = tuple[tuple[str, str], ...]


class Growth:
    """The last prompt of each context, to tell what the next one adds."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, Entries]] = {}
        self._said: dict[str, str] = {}  # call -> what it answered

    def grow(self, context: str, call: str, entries: Sequence[tuple[str, str]]) -> tuple[str | None, Entries]:
        """The call that this prompt grows from, and what it adds; None and all of it where it does not repeat one.

        A context is whatever shares a history: an agent, or the agents that hand over to each other.
        """
        whole = tuple(entries)
        before = self._last.get(context)
        self._last[context] = (call, whole)
        if before is None:
            return None, whole
        parent, known = before
        if parent == call or not known or len(whole) <= len(known) or whole[: len(known)] != known:
            return None, whole  # nothing new is a question asked again, not one that grew
        return parent, _without(self._said.pop(parent, ""), whole[len(known) :])

    def answered(self, call: str, completion: str | None) -> None:
        if completion:
            self._said[call] = completion


def _without(said: str, rest: Entries) -> Entries:
    """What follows the answer, which may stand in the prompt as several entries (its text, each of its tool calls)."""
    told = ""
    for place, (speaker, text) in enumerate(rest):
        if speaker != "assistant" or told == said:
            return rest[place:] if told == said else rest
        told = f"{told}\n{text}" if told else text
    return () if told == said else rest


def spoken(text: str | None, calls: Iterable[tuple[str, Any]]) -> str:
    """What a model said: its text, then its tool calls, one a line."""
    lines = [text] if text else []
    for name, arguments in calls:
        shown = (
            arguments
            if isinstance(arguments, str)
            else json.dumps(arguments, ensure_ascii=False, default=str)
        )
        lines.append(f"{name}({shown})")
    return "\n".join(lines)


def text_of(content: Any) -> str:
    """The words of a message's content: text, or a list of parts of which some have text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(filter(None, map(text_of, content)))
    for name in ("text", "content", "output", "refusal"):
        part = content.get(name) if isinstance(content, dict) else getattr(content, name, None)
        if isinstance(part, str | list | tuple):
            return text_of(part)
    kind = content.get("type") if isinstance(content, dict) else getattr(content, "type", None)
    return f"[{kind or type(content).__name__}]"
