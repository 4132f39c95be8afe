"""Notes as the page asks for them and writes them: beside the place that a trace is in, for traces that are there.

One line of the page is one change: a new note, other words for one, or one less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.errors import UsageError
from baton.trace.notes import Note, Notebook


class NoteChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person wrote on the page."""

    note: str | None = None
    """The note that is changed; None: a new one."""
    remove: bool = False
    event: str | None = None
    text: str = ""
    labels: tuple[str, ...] = ()
    score: float | None = None
    answer: str | None = None


def notes_of(place: Path, trace: str) -> dict[str, Any]:
    """All notes on a trace and its events, and the labels that are in use there."""
    book = Notebook(place)
    every = book.all()
    labels = sorted({label for note in every for label in note.labels})
    mine = [plain(note) for note in every if note.trace == trace]
    return {"notes": mine, "labels": labels, "stamp": book.stamp()}


def change_note(place: Path, trace: str, change: NoteChange) -> dict[str, Any]:
    """Write what a person changed; the answer is how it stands then."""
    book = Notebook(place)
    words = {"text": change.text, "labels": change.labels, "score": change.score, "answer": change.answer}
    if change.note is None:
        if change.remove:
            raise UsageError("which note is to go is not said.")
        book.add(trace, event=change.event, **words)  # type: ignore[arg-type]  # each of them is of its own type
    elif change.remove:
        book.remove(change.note)
    else:
        book.change(change.note, **words)
    return notes_of(place, trace)


def plain(note: Note) -> dict[str, Any]:
    """A note as the page takes it: every field, None where nobody said."""
    found: dict[str, Any] = msgspec.to_builtins(structs.asdict(note))
    return found
