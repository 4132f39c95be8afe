"""What people write about traces: notes, labels, scores and right answers, on a trace or on one of its events.

They are kept beside the trace and never in it: `NAME.notes` beside a file, a folder, a store or a training run, one
line of JSON for each change. So a trace stays what was recorded, and a store that is sealed keeps its notes.

Invariant: a line is on disk before anybody is told so; one that was cut off by a crash, or that cannot be read, takes
no other away; of several lines with one id the last holds; notes of several writers at once are all kept.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from math import fsum, isfinite
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from baton.errors import CorruptError, UsageError
from baton.trace.acts import unit_of
from baton.trace.formats.durable import REASONS, NotWritten, sync_directory
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

ENDING = ".notes"
_STORE, _RUN, _TRACES = "run.db", "run.json", "traces"
MOST_CHARACTERS = 100_000
CHANNEL = "notes"
"""The reward channel of what people said."""
_MOST_LABELS = 32
_MOST_LABEL_CHARACTERS = 60


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one person said of a trace, or of one event of it."""

    id: str
    trace: str
    event: str | None = None
    """None: of the whole trace."""
    text: str = ""
    labels: tuple[str, ...] = ()
    score: float | None = None
    """What it was worth, for rewards; None: nobody said."""
    answer: str | None = None
    """What the right answer would have been, for tests."""
    by: str = ""
    at: str = ""
    """When it was last changed, in UTC."""
    removed: bool = False


class Notebook:
    """The notes beside one place."""

    def __init__(self, place: Path) -> None:
        """`place` is a file of traces, a store, a folder of either, shards, or a training run."""
        self.path = notes_path(place)

    def all(self) -> list[Note]:
        """Every note that holds, in the order in which they were begun."""
        found: dict[str, Note] = {}
        for note in self._lines():
            found[note.id] = note
        return [note for note in found.values() if not note.removed]

    def of(self, trace: str) -> list[Note]:
        """Those of one trace and its events."""
        return [note for note in self.all() if note.trace == trace]

    def labels(self) -> dict[str, dict[str, int]]:
        """Trace -> label -> how many notes on it and its events carry it."""
        found: dict[str, dict[str, int]] = {}
        for note in self.all():
            counts = found.setdefault(note.trace, {})
            for label in note.labels:
                counts[label] = counts.get(label, 0) + 1
        return found

    def stamp(self) -> str:
        """Changes with every note."""
        try:
            stat = self.path.stat()
        except OSError:
            return "none"
        return f"{stat.st_size}.{stat.st_mtime_ns}"

    def add(
        self,
        trace: str,
        *,
        event: str | None = None,
        text: str = "",
        labels: Iterable[str] = (),
        score: float | None = None,
        answer: str | None = None,
        by: str | None = None,
    ) -> Note:
        """A new note, on disk when this returns."""
        note = Note(
            id=secrets.token_hex(6), trace=trace, event=event, text=text, labels=tuple(dict.fromkeys(labels)),
            score=score, answer=answer, by=who() if by is None else by, at=_now(),
        )  # fmt: skip
        self._append(_checked(note))
        return note

    def change(self, note: str, **changes: object) -> Note:
        """The note with other words, labels, score or answer."""
        was = self._known(note)
        made = structs.replace(was, **changes, at=_now())
        self._append(_checked(made))
        return made

    def remove(self, note: str) -> Note:
        """Take a note away; the lines that made it stay in the file."""
        made = structs.replace(self._known(note), removed=True, at=_now())
        self._append(made)
        return made

    def _known(self, note: str) -> Note:
        for one in self.all():
            if one.id == note:
                return one
        raise UsageError(f"{self.path} has no note {note!r}.")

    def _lines(self) -> Iterator[Note]:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise UsageError(f"the notes {self.path} cannot be read: {error.strerror}.") from None
        for line in raw.split(b"\n"):
            if line.strip():
                try:
                    yield msgspec.json.decode(line, type=Note)
                except (msgspec.DecodeError, UnicodeError):  # cut off by a crash, or somebody else's
                    continue

    def _append(self, note: Note) -> None:
        line = msgspec.json.encode(note) + b"\n"
        new = not self.path.exists()
        try:
            with _held(self.path) as file:
                size = os.lseek(file, 0, os.SEEK_END)
                if size and os.pread(file, 1, size - 1) != b"\n":
                    line = b"\n" + line  # a crash cut the last one off
                try:
                    if os.write(file, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    os.ftruncate(file, size)
                    raise
                os.fsync(file)
            if new:
                sync_directory(self.path.parent)
        except OSError as error:
            why = REASONS.get(error.errno or 0, error.strerror or str(error))
            raise NotWritten(f"the note cannot be written to {self.path}: {why}.") from None


def notes_path(place: Path) -> Path:
    """Where the notes of a place are. What a run or a training wrote is one place, by whichever name it is opened."""
    place = place.resolve()
    if place.name == _STORE:
        place = place.parent
    if place.name == _TRACES and (place.parent / _RUN).is_file():
        place = place.parent
    return place.with_name(place.name + ENDING)


def who() -> str:
    """Who writes: the name of the account; "" where it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def scores_of(
    trace: Trace, notes: Iterable[Note], values: Mapping[str, float] | None = None
) -> dict[tuple[CreditUnit, str], float]:
    """Unit and target -> what people said it was worth: the mean of their scores.

    A note without a score is worth what `values` says of its labels together. A note on the trace is one on the team; a
    note on an event is one on what it is: a decision, a message, a tool call, else its turn. Notes on events that the
    trace does not have, or that are none of these, are left out.
    """
    worth = values or {}
    scores: dict[tuple[CreditUnit, str], list[float]] = {}
    for note in notes:
        given = [worth[label] for label in note.labels if label in worth]
        score = note.score if note.score is not None else fsum(given) if given else None
        unit = _unit(trace, note) if note.trace == trace.trace_id else None
        if unit is not None and score is not None:
            scores.setdefault(unit, []).append(score)
    return {unit: fsum(said) / len(said) for unit, said in scores.items()}


def as_rewards(
    trace: Trace, notes: Iterable[Note], values: Mapping[str, float] | None = None
) -> list[Reward]:
    """The same as reward records on the channel `notes`.

    What people said of the team stands in place of the task's own score, as what a rule says does.
    """
    return [
        Reward(
            family="shared" if unit == "team" else "process",
            unit=unit,
            target=target,
            value=value,
            name=CHANNEL,
            by=json.dumps({"rule": CHANNEL}),
        )
        for (unit, target), value in scores_of(trace, notes, values).items()
    ]


def as_test(trace: Trace, notes: Iterable[Note]) -> dict[str, str] | None:
    """A line of a test set, as the task `jsonl` reads it: what the team was asked, and the right answer.

    None: nobody gave an answer, or the trace does not hold the question.
    """
    gold = as_gold(note for note in notes if note.trace == trace.trace_id).get(trace.trace_id)
    question = question_of(trace)
    if gold is None or question is None:
        return None
    return {
        "question": question,
        "answer": gold["answer"],
        "trace": trace.trace_id,
        "task": trace.header.task_id,
    }


def question_of(trace: Trace) -> str | None:
    """What the team was asked: the first that a person said to the first model. None: the trace does not hold it."""
    first = next((call for call in trace.calls if call.prompt_ref is not None), None)
    try:
        text = None if first is None else trace.text(first.prompt_ref)
        entries = msgspec.json.decode(text) if text else []
    except (CorruptError, msgspec.DecodeError, RecursionError):
        return None
    for each in entries if isinstance(entries, list) else []:
        if isinstance(each, dict) and each.get("speaker") == "user" and isinstance(each.get("text"), str):
            return str(each["text"])
    return None


def as_gold(notes: Iterable[Note]) -> dict[str, dict[str, str]]:
    """Trace id -> its right answer, as `--gold` takes it: the last one that somebody gave."""
    return {note.trace: {"answer": note.answer} for note in notes if note.answer is not None}


def _unit(trace: Trace, note: Note) -> tuple[CreditUnit, str] | None:
    if note.event is None:
        return "team", trace.trace_id
    if note.event not in trace.position:
        return None
    event = trace.event(note.event)
    unit = unit_of(event)
    if unit is not None:
        return unit, event.id
    return None if event.call is None else ("turn", event.call)


def _checked(note: Note) -> Note:
    """Raises on what is no note."""
    if not (note.text.strip() or note.labels or note.score is not None or note.answer is not None):
        raise UsageError("the note is empty. Give a text, a label, a score or an answer.")
    if len(note.text) > MOST_CHARACTERS or len(note.answer or "") > MOST_CHARACTERS:
        raise UsageError(f"a note has at most {MOST_CHARACTERS:,} characters.")
    if len(note.labels) > _MOST_LABELS:
        raise UsageError(f"a note has at most {_MOST_LABELS} labels.")
    for label in note.labels:
        if not label.strip() or len(label) > _MOST_LABEL_CHARACTERS or not label.isprintable():
            raise UsageError(
                f"{json.dumps(label[:80])} is no label; expected 1 to {_MOST_LABEL_CHARACTERS} visible characters."
            )
    if note.score is not None and not isfinite(note.score):
        raise UsageError(f"a score is a finite number, not {note.score}.")
    return note


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """The file, opened to add to it, with nobody else adding."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # dropped with the file, and so by a crash as well
        yield file
    finally:
        os.close(file)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
