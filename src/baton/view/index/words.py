"""Which traces may have some words in them, by the runs of three characters in what was said there.

SQLite's FTS5 keeps, for each such run, in which traces it stands: no text, no order, no counts. So it rules traces out
and nothing else; those that are left are read, and the reading decides. Texts are folded so that whatever the reading
takes for the same is the same here.

Invariant: a trace in which the words stand is never ruled out. What is not here (a run that goes on, a trace that is
too long, one that came when there was no more room) is always left to be read, and so is everything where SQLite has
no FTS5 or the words have less than three characters.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from baton.trace.trace import Trace
from baton.view.index.matching import texts_of

MOST_BYTES: Final = 1 << 29
"""Of the whole index; traces that come when it is full are read by each search."""
_MOST_CHARACTERS = 4_000_000
_RUN = 3
_MOST_RUNS = 24
_SPENT = 4  # one part in so many may be of traces that are gone
_CREATE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5"
    "(said, content='', detail=none, columnsize=0, tokenize='trigram case_sensitive 1')"
)
_ROOM = "CREATE TABLE IF NOT EXISTS word_room (given INTEGER NOT NULL, spent INTEGER NOT NULL)"


class SaidWords(Struct, frozen=True):
    """All that was said in a trace, folded, and what tells it from another."""

    text: str
    digest: bytes


def folded(text: str) -> str:
    """A text without what a search does not mind: capital letters and how wide a gap is."""
    # Of the pairs that `re.IGNORECASE` takes for one letter, casefold has all but the Turkish ones.
    plain = text.replace("İ", "i").replace("ı", "i").replace("\0", "\ufffd").casefold()
    try:
        plain.encode()
    except UnicodeEncodeError:  # half of a pair
        plain = plain.encode("utf-8", "replace").decode()
    return " ".join(plain.split())


def words_of(trace: Trace) -> SaidWords | None:
    """All that was said in a trace; None: it goes on, or there is too much of it."""
    if not trace.finished:
        return None
    parts = []
    left = _MOST_CHARACTERS
    for text in texts_of(trace):
        left -= len(text)
        if left < 0:
            return None
        parts.append(text)
    said = folded("\n".join(parts))
    return SaidWords(said, blake2b(said.encode(), digest_size=8).digest())


def asked_for(words: str) -> str | None:
    """The runs that stand in every trace with these words, in FTS5's language; None: there are none."""
    plain = folded(words)
    runs = list(dict.fromkeys(plain[at : at + _RUN] for at in range(len(plain) - _RUN + 1)))
    if not runs:
        return None
    step = max(1, len(runs) // _MOST_RUNS)
    quoted = ('"' + run.replace('"', '""') + '"' for run in runs[::step][:_MOST_RUNS])
    return " AND ".join(quoted)


class WordTable:
    """The runs of the traces of an index, each trace under a number of its own. Its owner holds the lock."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        try:
            db.execute(_CREATE)
            self.works = True
        except sqlite3.OperationalError:  # this SQLite has no FTS5, or one without runs of three
            self.works = False
        db.execute(_ROOM)
        if db.execute("SELECT given FROM word_room").fetchone() is None:
            db.execute("INSERT INTO word_room VALUES (0, 0)")

    def put(self, said: SaidWords | None) -> int | None:
        """Keep what was said in one trace under a number; None: it is not kept."""
        if said is None or not self.works or self.is_full():
            return None
        (given,) = self._db.execute("UPDATE word_room SET given = given + 1 RETURNING given").fetchone()
        if said.text:
            self._db.execute("INSERT INTO words (rowid, said) VALUES (?, ?)", (given, said.text))
        return int(given)

    def spend(self, numbers: int) -> None:
        """So many numbers are of no trace any more."""
        self._db.execute("UPDATE word_room SET spent = spent + ?", (numbers,))

    def is_full(self) -> bool:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (size,) = self._db.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(size) > MOST_BYTES

    def is_spent(self) -> bool:
        """Whether much of it is of what is gone, which can only be taken out by building it anew."""
        given, spent = self._db.execute("SELECT given, spent FROM word_room").fetchone()
        return bool(spent * _SPENT > given)

    def clear(self) -> None:
        """Take everything out."""
        if self.works:
            self._db.execute("DROP TABLE words")
            self._db.execute(_CREATE)
        self._db.execute("UPDATE word_room SET given = 0, spent = 0")
