"""An ask laid out as pieces of text in their places, so that two can be held side by side.

Messages come first, in order, then what frames them (model, tools, settings). What cannot change an answer is left out:
whether it is streamed. Objects are written in one way (keys in order), as are the arguments of tools, which programs
parse and write again.
"""

from __future__ import annotations

import json
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from baton.serve.exchange import Ask, Utterance
from baton.serve.replay.masks import Masks

_FRAME = (
    "dialect",
    "model",
    "tool_choice",
    "parallel",
    "json",
    "json_schema",
    "sampling",
    "seed",
    "n",
    "logprobs",
    "extra",
)


class QuestionPiece(Struct, frozen=True):
    """One text of a question."""

    message: int | None
    """Which message, from 0; None: of what frames them."""
    part: str
    """Which part of it, such as `text` or `uses`."""
    text: str
    tells_names: bool = False
    """A tool's result, in which new names may be told."""

    @property
    def place(self) -> tuple[int | None, str]:
        return self.message, self.part


class LaidQuestion(Struct, frozen=True, dict=True):
    """An ask in pieces."""

    ask: Ask
    pieces: tuple[QuestionPiece, ...]
    notes: tuple[str, ...]
    """What a harness told when it happened to be known, in order of its coming."""
    bare: tuple[QuestionPiece, ...]
    """The pieces without those notes."""

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal questions."""
        told = blake2b(digest_size=16)
        for piece in self.pieces:
            told.update(f"{piece.message}/{piece.part}/{len(piece.text)}/".encode())
            told.update(piece.text.encode(errors="surrogatepass"))
        return told.digest()


def lay_out(ask: Ask, masks: Masks) -> LaidQuestion:
    """The question of an ask."""
    messages: list[Utterance] = []
    notes: list[str] = []
    for place, message in enumerate(ask.messages):
        rest, mine = (
            _without_notes(message, masks)
            if place and message.speaker in ("user", "system")
            else (message, [])
        )
        notes += mine
        if rest is not None:
            messages.append(rest)
    frame = _frame(ask)
    pieces = (*_laid(ask.messages), *frame)
    return LaidQuestion(ask, pieces, tuple(notes), (*_laid(tuple(messages)), *frame) if notes else pieces)


def _laid(messages: tuple[Utterance, ...]) -> tuple[QuestionPiece, ...]:
    return tuple(piece for place, message in enumerate(messages) for piece in _of_message(place, message))


def _of_message(place: int, message: Utterance) -> list[QuestionPiece]:
    told = message.speaker == "tool"
    found = [QuestionPiece(place, f"{message.speaker}", message.text, told)]
    if message.thinking:
        found.append(QuestionPiece(place, "thinking", message.thinking))
    for number, use in enumerate(message.uses):
        found.append(
            QuestionPiece(place, f"tool {number + 1}", f"{use.name} {canonical_json(use.arguments)}")
        )
        found.append(QuestionPiece(place, f"tool {number + 1} id", use.id))
    for part, value in (("answers", message.answers), ("name", message.name)):
        if value:
            found.append(QuestionPiece(place, part, value))
    if message.failed:
        found.append(QuestionPiece(place, "failed", "true"))
    for number, other in enumerate(message.others):
        found.append(QuestionPiece(place, f"part {number + 1}", _ordered(other)))
    return found


def _frame(ask: Ask) -> tuple[QuestionPiece, ...]:
    found = [QuestionPiece(None, name, _ordered(getattr(ask, name))) for name in _FRAME]
    found += [
        QuestionPiece(None, f"tool offered {number + 1}", _ordered(offer))
        for number, offer in enumerate(ask.tools)
    ]
    return tuple(found)


def _ordered(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, order="deterministic").decode()


def canonical_json(text: str) -> str:
    """JSON written in one way; what is none stays as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    except ValueError:
        return text


_PREFACE, _WRAPPER = "[SYSTEM NOTIFICATION", "<system-reminder>"
"""With which Claude Code explains to a model what a notification is."""


def _without_notes(message: Utterance, masks: Masks) -> tuple[Utterance | None, list[str]]:
    """A message less what is a note in it; None: nothing is left of it."""
    if masks.note is None or message.speaker not in ("user", "system") or "<" not in message.text:
        return message, []
    found = [each[0] for each in masks.note.finditer(message.text)]
    if not found:
        return message, []
    rest = masks.note.sub("", message.text).strip()
    bare = rest.removeprefix(_WRAPPER).lstrip()
    if (not bare or bare.startswith(_PREFACE)) and not message.others:
        return None, found
    return msgspec.structs.replace(message, text=rest), found
