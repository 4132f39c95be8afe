"""The index behind the table of all traces: one SQLite table, in memory or in a file of the user's cache.

Windows of it are cheap however long it is: what a query finds, in its order, is worked out once as a list of row
numbers and kept until the index changes, so that scrolling reads only what is on the screen.

Invariant: everything in it was read from traces and can be read again; losing it costs time and nothing else.
"""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from baton.errors import UsageError, nearest
from baton.trace.records import ROUNDING
from baton.view.index.line import ListedTrace
from baton.view.index.query import COLUMNS, NUMBERS, Condition
from baton.view.index.words import SaidWords, WordTable, asked_for

SCHEMA: Final = 2
FORKED: Final = "\0fork"
"""Stands for the file of what was made here and is kept by nobody: it goes when the viewer does."""
_FIELDS: Final = tuple(field.name for field in structs.fields(ListedTrace))
_KEPT_ORDERS = 16
_HOMES_AT_ONCE = 5_000
_TEXTS = ("id", "task", "instance", "stop", "topology", "system", "policies", "forked_from")
_CREATE = f"""
CREATE TABLE IF NOT EXISTS lines (
  number INTEGER PRIMARY KEY, place TEXT NOT NULL, file TEXT NOT NULL, stamp TEXT NOT NULL, changed REAL, labels TEXT,
  words INTEGER, digest BLOB,
  {", ".join(f"{name} {'TEXT' if name in _TEXTS else 'REAL'}" for name in _FIELDS)},
  UNIQUE (place, id)
);
CREATE TABLE IF NOT EXISTS places (place TEXT PRIMARY KEY, path TEXT NOT NULL, stamp TEXT NOT NULL);
"""
_WHOLE = ("finished", "events", "read", "agents", "estimated", "step")
_FLAGS = ("finished", "read", "estimated")
SHOWN: Final = ("place", "changed", "labels", *_FIELDS)


class KnownLine(Struct, frozen=True):
    """What the index has of one trace, and of which state of its file."""

    file: str
    stamp: str
    row: ListedTrace
    changed: float | None = None
    words: SaidWords | None = None
    """All that was said in it; None: a search has to read it."""


class TraceIndex:
    """Lines about the traces of all places."""

    def __init__(self, path: Path | None = None) -> None:
        self._db = sqlite3.connect(":memory:" if path is None else path, check_same_thread=False, timeout=10)
        self._db.isolation_level = None
        self._db.create_function("fold", 1, _fold, deterministic=True)
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;" + _CREATE)
        self._db.execute("CREATE INDEX IF NOT EXISTS said ON lines (words)")
        self._words = WordTable(self._db)
        self._lock = threading.RLock()
        self._delete("file = ?", (FORKED,))
        if self._words.is_spent():
            self._words.clear()
            self._db.execute("UPDATE lines SET stamp = '', words = NULL WHERE words NOT NULL")
            self._db.execute("UPDATE places SET stamp = ''")  # so that they are read again
        self._orders: OrderedDict[tuple[str, tuple[Any, ...], str], tuple[int, array[int]]] = OrderedDict()
        self.version = 0
        """Counts changes."""

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # What is known of a place.

    def begin(self, place: str, path: str) -> str:
        """The stamp at which all of a place had been read. What is known of another place of this name is dropped."""
        with self._lock:
            found = self._db.execute("SELECT path, stamp FROM places WHERE place = ?", (place,)).fetchone()
            if found is not None and found[0] == path:
                return str(found[1])
            self._delete("place = ? AND file != ?", (place, FORKED))
            self._db.execute("INSERT OR REPLACE INTO places VALUES (?, ?, '')", (place, path))
            self.version += 1
            return ""

    def finish(self, place: str, stamp: str) -> None:
        """All of a place has been read, as it was at this stamp."""
        with self._lock:
            self._db.execute("UPDATE places SET stamp = ? WHERE place = ?", (stamp, place))

    def known(self, place: str) -> dict[str, tuple[str, str]]:
        """Trace -> the file it is in, and the state in which it was read."""
        with self._lock:
            found = self._db.execute(
                "SELECT id, file, stamp FROM lines WHERE place = ? AND file != ?", (place, FORKED)
            ).fetchall()
        return {name: (file, stamp) for name, file, stamp in found}

    def put(self, place: str, lines: Iterable[KnownLine]) -> None:
        """Add lines, or put them in place of older ones; labels stay."""
        own = ("file", "stamp", "changed", "words", "digest", *_FIELDS)
        changes = ", ".join(f"{name} = excluded.{name}" for name in own)
        sql = (
            f"INSERT INTO lines (place, {', '.join(own)}) VALUES (?, {', '.join('?' * len(own))}) "
            f"ON CONFLICT (place, id) DO UPDATE SET {changes}"
        )
        with self._lock:
            self._db.execute("BEGIN")
            rows = [
                (
                    place,
                    line.file,
                    line.stamp,
                    line.changed,
                    *self._kept(place, line),
                    *structs.astuple(line.row),
                )
                for line in lines
            ]
            self._db.executemany(sql, rows)
            self._db.execute("COMMIT")
            self.version += 1

    def _kept(self, place: str, line: KnownLine) -> tuple[int | None, bytes | None]:
        """The number of what was said in a trace, which is another where it says something else than it did."""
        digest = None if line.words is None else line.words.digest
        before = self._db.execute(
            "SELECT words, digest FROM lines WHERE place = ? AND id = ?", (place, line.row.id)
        ).fetchone()
        if before is not None and before[0] is not None:
            if before[1] == digest:
                return before[0], digest
            self._words.spend(1)
        return self._words.put(line.words), digest

    def _delete(self, where: str, values: Sequence[str]) -> None:
        """Take lines away; what was said in their traces is of nobody from then on."""
        (spent,) = self._db.execute(f"SELECT count(words) FROM lines WHERE {where}", values).fetchone()
        self._db.execute(f"DELETE FROM lines WHERE {where}", values)
        self._words.spend(spent)

    def mark_read(self, place: str, file: str, stamp: str) -> None:
        """A file of a place has been read to its end, as it was at this stamp."""
        with self._lock:
            self._db.execute("UPDATE lines SET stamp = ? WHERE place = ? AND file = ?", (stamp, place, file))

    def label(self, place: str, labels: dict[str, str]) -> None:
        """The labels of a place's traces, one a line; the rest has none."""
        with self._lock:
            self._db.execute("BEGIN")
            self._db.execute("UPDATE lines SET labels = NULL WHERE place = ? AND labels NOT NULL", (place,))
            self._db.executemany(
                "UPDATE lines SET labels = ? WHERE place = ? AND id = ?",
                [(told, place, name) for name, told in labels.items()],
            )
            self._db.execute("COMMIT")
            self.version += 1

    def drop(self, place: str, ids: Sequence[str]) -> None:
        with self._lock:
            self._db.execute("BEGIN")
            for name in ids:
                self._delete("place = ? AND id = ?", (place, name))
            self._db.execute("COMMIT")
            self.version += bool(ids)

    def drop_place(self, place: str) -> None:
        with self._lock:
            self._delete("place = ?", (place,))
            self._db.execute("DELETE FROM places WHERE place = ?", (place,))
            self.version += 1

    def places(self) -> list[str]:
        with self._lock:
            return [place for (place,) in self._db.execute("SELECT place FROM places")]

    # Questions.

    def count(self, where: Condition) -> int:
        with self._lock:
            (found,) = self._db.execute(
                f"SELECT count(*) FROM lines WHERE {where.sql}", where.values
            ).fetchone()
        return int(found)

    def order(self, where: Condition, sort: str) -> array[int]:
        """The numbers of the lines that fit, in order. `sort`: columns, with a - before those that fall."""
        name = (where.sql, where.values, sort)
        with self._lock:
            kept = self._orders.get(name)
            if kept is None or kept[0] != self.version:
                sql = f"SELECT number FROM lines WHERE {where.sql} ORDER BY {_ordering(sort)}"
                found = array("q", (number for (number,) in self._db.execute(sql, where.values)))
                self._orders[name] = kept = (self.version, found)
            self._orders.move_to_end(name)
            while len(self._orders) > _KEPT_ORDERS:
                self._orders.popitem(last=False)
        return kept[1]

    def may_say(
        self, words: str, numbers: Sequence[int], unsure: Sequence[str] = ()
    ) -> tuple[list[int], int]:
        """Of these lines those whose traces may say some words, in the same order; the others do not. And how many of
        them are there because nothing is known of what was said.

        `unsure`: places of which not all is known as it is now; their traces may say anything.
        """
        runs = asked_for(words)
        if runs is None or not self._words.works:
            return list(numbers), len(numbers)
        with self._lock:
            matched = self._db.execute(
                "SELECT number FROM lines WHERE words IN (SELECT rowid FROM words WHERE words MATCH ?)",
                (runs,),
            )
            said = {number for (number,) in matched}
            unknown = self._db.execute(
                f"SELECT number FROM lines WHERE words IS NULL OR place IN ({', '.join('?' * len(unsure))})",
                unsure,
            )
            unsaid = {number for (number,) in unknown} - said
        left = [number for number in numbers if number in said or number in unsaid]
        return left, sum(number in unsaid for number in left)

    def in_places(self, places: Sequence[str]) -> set[int]:
        """The lines of these places."""
        marks = ", ".join("?" * len(places))
        with self._lock:
            found = self._db.execute(f"SELECT number FROM lines WHERE place IN ({marks})", places)
            return {number for (number,) in found}

    def lines(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Lines by their numbers, in that order."""
        marks = ", ".join("?" * len(numbers))
        sql = f"SELECT number, {', '.join(SHOWN)} FROM lines WHERE number IN ({marks})"
        with self._lock:
            found = {row[0]: row[1:] for row in self._db.execute(sql, list(numbers))}
        return [_plain(found[number]) for number in numbers if number in found]

    def homes(self, numbers: Sequence[int]) -> dict[str, dict[str, str]]:
        """Where the traces of these lines are: place -> trace -> file."""
        found: dict[str, dict[str, str]] = {}
        with self._lock:
            for at in range(0, len(numbers), _HOMES_AT_ONCE):
                lot = list(numbers[at : at + _HOMES_AT_ONCE])
                marks = ", ".join("?" * len(lot))
                sql = f"SELECT place, id, file FROM lines WHERE number IN ({marks})"
                for place, name, file in self._db.execute(sql, lot):
                    found.setdefault(place, {})[name] = file
        return found

    def places_with(self, trace_id: str) -> list[str]:
        with self._lock:
            found = self._db.execute("SELECT place FROM lines WHERE id = ? ORDER BY place", (trace_id,))
            return [place for (place,) in found]

    def values(self, column: str, where: Condition, most: int) -> tuple[list[tuple[Any, int]], int]:
        """The most frequent values of a column among the lines that fit, and how many values there are."""
        name = column_of(column)
        with self._lock:
            found = self._db.execute(
                f"SELECT {name}, count(*) FROM lines WHERE {where.sql} GROUP BY {name} ORDER BY 2 DESC, 1 LIMIT ?",
                (*where.values, most),
            ).fetchall()
            (kinds,) = self._db.execute(
                f"SELECT count(DISTINCT {name}) FROM lines WHERE {where.sql}", where.values
            ).fetchone()
        return [(value, int(number)) for value, number in found], int(kinds)

    def figures(self, where: Condition, by: str | None) -> list[dict[str, Any]]:
        """Of the lines that fit, by the values of a column: how many, and of each number its mean and spread."""
        name = "''" if by is None else column_of(by)
        told = ", ".join(
            f"count({column}), avg({column}), avg({column} * {column}), min({column}), max({column})"
            for key, column in NUMBERS.items()
            if key != "when"
        )
        sql = f"SELECT {name}, count(*), {told} FROM lines WHERE {where.sql} GROUP BY 1 ORDER BY 2 DESC, 1"
        with self._lock:
            rows = self._db.execute(sql, where.values).fetchall()
        keys = [key for key in NUMBERS if key != "when"]
        return [
            {
                "value": row[0],
                "traces": row[1],
                **{key: _figure(row[2 + 5 * k : 7 + 5 * k]) for k, key in enumerate(keys)},
            }
            for row in rows
        ]


def column_of(name: str) -> str:
    """The index's own column for what a person calls one."""
    if name not in COLUMNS:
        raise UsageError(f"there is no column {name[:40]!r}. {nearest(name, COLUMNS)}")
    return COLUMNS[name]


def picked(pairs: Sequence[tuple[str, str]]) -> Condition:
    """The condition that a line is one of these: places and traces."""
    if not pairs:
        return Condition("0")
    marks = ", ".join(["(?, ?)"] * len(pairs))
    return Condition(f"(place, id) IN (VALUES {marks})", tuple(value for pair in pairs for value in pair))


def _ordering(sort: str) -> str:
    """What was not measured goes last, whichever way the rest goes."""
    parts = []
    for word in filter(None, sort.split(",")):
        column = column_of(word.removeprefix("-"))
        parts.append(f"{column} IS NULL, {column} {'DESC' if word.startswith('-') else 'ASC'}")
    return ", ".join([*parts, "number"])


def _figure(found: Sequence[Any]) -> dict[str, float] | None:
    """Mean, deviation, least and most; None where nothing was measured."""
    n, mean, square, least, most = found
    if not n:
        return None
    spread = square - mean * mean if n > 1 else 0.0
    if spread < ROUNDING * square:
        spread = 0.0
    return {"n": n, "mean": mean, "sd": (spread * n / max(1, n - 1)) ** 0.5, "min": least, "max": most}


def _plain(row: Sequence[Any]) -> dict[str, Any]:
    found = _typed(dict(zip(SHOWN, row, strict=True)))
    found["labels"] = found["labels"].split("\n") if found["labels"] else []
    return found


def _typed(found: dict[str, Any]) -> dict[str, Any]:
    """SQLite keeps one kind of number here; what counts is whole, and flags are flags."""
    for name in _WHOLE:
        if found[name] is not None:
            found[name] = bool(found[name]) if name in _FLAGS else int(found[name])
    return found


def _fold(text: Any) -> str | None:
    return text.casefold() if isinstance(text, str) else None
