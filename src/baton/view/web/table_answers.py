"""What the page asks about all traces at once: windows of the table, what stands in a column, figures, labels, files.

A selection is a query in the table's language, or the traces that a person ticked. Invariant: nothing is left out
without a number that says how many.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from baton.errors import UsageError
from baton.trace.formats.jsonl import encode_trace
from baton.trace.notes import Notebook
from baton.view.index.query import COLUMNS, Condition, condition
from baton.view.index.searching import ContentSearch, Searches
from baton.view.index.table import SHOWN, column_of, picked
from baton.view.web.traces import Library

_MOST_ROWS = 500
_MOST_PICKED = 2_000
_MOST_VALUES = 12
_MOST_LABELLED = 1_000
_FACETS = ("place", "task", "topology", "stop", "policy", "label")
_AT_ONCE = 200
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_PATIENCE_SECONDS = 0.3
_PAIRS = msgspec.json.Decoder(list[tuple[str, str]])

Query = Mapping[str, str]


class TableAnswers:
    """Answers about the lines of all traces of a library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._searches = Searches()

    def stamp(self, _query: Query) -> str:
        """Changes with every line, and with how far reading is."""
        self._library.filler.look()
        return (
            f"{self._library.index.version} {msgspec.json.encode(self._library.filler.progress()).decode()}"
        )

    def window(self, query: Query) -> dict[str, Any]:
        """Some rows of what a query finds, in its order, and how many there are. `place`: nobody looks at others."""
        place = query.get("place") or None
        if place is not None:
            self._library.place(place)  # says so where there is none
        self._library.filler.look(place, _PATIENCE_SECONDS)
        index, where = self._library.index, selection(query)
        order = index.order(where, query.get("sort", ""))
        start, rows = _whole(query, "from", 0), min(_MOST_ROWS, _whole(query, "rows", 100))
        if query.get("picks") and not query.get("sort"):  # as they were ticked
            places = {pair: at for at, pair in enumerate(_pairs(query["picks"]))}
            every = sorted(index.lines(order), key=lambda line: places[line["place"], line["id"]])
            found = every[start : start + rows]
        else:
            found = index.lines(order[start : start + rows])
        return {
            "total": len(order),
            "of": index.count(Condition("1") if place is None else Condition("place = ?", (place,))),
            "rows": found,
            "progress": self._library.filler.progress(place),
            "version": index.version,
        }

    def values(self, query: Query) -> dict[str, Any]:
        """What stands in the columns of words, the most frequent first."""
        where = selection(query)
        found = {}
        for column in _FACETS:
            values, kinds = self._library.index.values(column, where, _MOST_VALUES)
            found[column] = {"values": values, "kinds": kinds}
        return {"columns": found}

    def figures(self, query: Query) -> dict[str, Any]:
        """Means and spreads of a selection, whole or by a column."""
        by = query.get("by") or None
        if by is not None:
            column_of(by)
        return {"groups": self._library.index.figures(selection(query), by)}

    def labelled(self, query: Query, label: str) -> dict[str, Any]:
        """Write a label on every trace of a selection, beside the places they are in."""
        found = list(self._every(query))
        if len(found) > _MOST_LABELLED:
            raise UsageError(
                f"{len(found):,} traces are selected; one label is written on at most {_MOST_LABELLED:,}."
            )
        books: dict[str, Notebook] = {}
        labelled = 0
        for line in found:
            place = line["place"]
            book = books.setdefault(place, Notebook(self._library.place(place).path))
            if label not in line["labels"]:
                book.add(line["id"], labels=(label,))
                labelled += 1
        return {"labelled": labelled, "had_it": len(found) - labelled}

    def exported(self, query: Query) -> tuple[str, str, Iterator[bytes]]:
        """A selection as a file: its media type, its name and its bytes."""
        kind = query.get("as", "csv")
        selection(query)  # a mistake in it is an answer, and no half of a file
        if kind == "csv":
            return "text/csv; charset=utf-8", "traces.csv", self._table(query)
        if kind == "jsonl":
            return "application/x-ndjson", "traces.jsonl", self._traces(query)
        raise UsageError(f"there is no export as {kind[:40]!r}. Expected csv or jsonl.")

    def _every(self, query: Query) -> Iterator[dict[str, Any]]:
        order = self._library.index.order(selection(query), query.get("sort", ""))
        for at in range(0, len(order), _AT_ONCE):
            yield from self._library.index.lines(order[at : at + _AT_ONCE])

    def _table(self, query: Query) -> Iterator[bytes]:
        names = {column: name for name, column in COLUMNS.items()}
        yield _csv([names.get(column, column) for column in SHOWN])
        for line in self._every(query):
            line["labels"] = "; ".join(line["labels"])
            yield _csv([_cell(line[column]) for column in SHOWN])

    def _traces(self, query: Query) -> Iterator[bytes]:
        order = self._library.index.order(selection(query), query.get("sort", ""))
        for given, (place, trace) in enumerate(self._library.every(order)):
            if isinstance(trace, str):
                # What was given cannot be taken back. No reader takes this line for a record.
                ends = f"The export ends here, with {given:,} of {len(order):,} traces."
                yield msgspec.json.encode({"error": f"{place}: {trace} {ends}"}) + b"\n"
                return
            yield from encode_trace(trace)

    # Search in content.

    def search(self, query: Query) -> dict[str, Any]:
        """A search in what was said in the traces of a selection: how far it is, and some of what it found."""
        start, most = _whole(query, "from", 0), min(_MOST_ROWS, _whole(query, "rows", 100))
        if query.get("again"):
            self._searches.forget(_search_name(query))
        return self._searches.of(_search_name(query), lambda: self._begin(query)).told(start, most)

    def search_stamp(self, query: Query) -> str:
        """Changes while a search goes on."""
        return self._searches.stamp(_search_name(query))

    def _begin(self, query: Query) -> ContentSearch:
        words, where = query.get("words", ""), selection(query)
        rounds = partial(self._library.rounds, words, where, query.get("sort", ""))
        return ContentSearch(words, rounds, self._library.every)


def _search_name(query: Query) -> str:
    return "\n".join(query.get(name, "") for name in ("words", "q", "picks"))


def selection(query: Query) -> Condition:
    """The traces that a person ticked, where some are; else what their query finds."""
    if query.get("picks"):
        return picked(_pairs(query["picks"]))
    return condition(query.get("q", ""))


def _pairs(text: str) -> list[tuple[str, str]]:
    """Ticked traces: places and names."""
    try:
        pairs = _PAIRS.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"the chosen traces cannot be read: {error}.") from None
    if len(pairs) > _MOST_PICKED:
        raise UsageError(
            f"{len(pairs):,} traces were ticked; expected at most {_MOST_PICKED:,}. Use a query."
        )
    return pairs


def _whole(query: Query, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(f"{name} is {text[:40]!r}; expected a whole number.")
    return int(text)


def _csv(cells: list[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """A spreadsheet runs what begins like a formula: strangers' words are given as words."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
