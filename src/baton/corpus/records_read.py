"""Reads the records: TOML files beside this one, shipped with the package.

The survey's pool has one file for each category and `excluded.toml`; `beyond.toml` is what Baton adds, in none
of the survey's counts. Invariant: what loads has passed every check.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from baton.corpus.check import CheckedRow, problems
from baton.corpus.record import VOCABULARIES, Excluded, Paper
from baton.errors import FormatError, nearest

_FILES = (*(f"{category}.toml" for category in VOCABULARIES["category"]), "beyond.toml", "excluded.toml")


class Corpus(Struct, frozen=True, kw_only=True):
    """The records."""

    papers: tuple[Paper, ...]
    """The survey's pool: 84 entries."""
    beyond: tuple[Paper, ...]
    """Methods outside the pool that Baton has recipes for."""
    excluded: tuple[Excluded, ...]

    @property
    def all_papers(self) -> tuple[Paper, ...]:
        return (*self.papers, *self.beyond)


def texts() -> dict[str, str]:
    """File name -> its text, of the records that ship with Baton."""
    places = files("baton.corpus").joinpath("records").iterdir()
    return {place.name: place.read_text("utf-8") for place in sorted(places, key=lambda place: place.name)}


@cache
def load() -> Corpus:
    """The records that ship with Baton."""
    return parse(texts())


def parse(given: dict[str, str]) -> Corpus:
    """Records from the texts of files; an error lists every problem, each with its row."""
    rows, found = [], []
    for name in sorted(given, key=lambda name: _FILES.index(name) if name in _FILES else len(_FILES)):
        try:
            rows += _rows(name, given[name])
        except FormatError as error:
            found.append(str(error))
    found += problems(rows)
    if found:
        raise FormatError("\n".join(found))
    papers = [(row.file, msgspec.convert(row.fields, Paper)) for row in rows if row.kind is Paper]
    return Corpus(
        papers=tuple(paper for file, paper in papers if file != "beyond.toml"),
        beyond=tuple(paper for file, paper in papers if file == "beyond.toml"),
        excluded=tuple(msgspec.convert(row.fields, Excluded) for row in rows if row.kind is Excluded),
    )


def _rows(name: str, text: str) -> list[CheckedRow]:
    if name not in _FILES:
        raise FormatError(f"there is no file of records {name!r}. {nearest(name, _FILES)}")
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{name}: not valid TOML: {error}.") from None
    heading = "excluded" if name == "excluded.toml" else "paper"
    for key in table:
        if key != heading:
            raise FormatError(f"{name}: there is no table {key!r} here. Write [[{heading}]] above a record.")
    records = table.get(heading, [])
    if not isinstance(records, list):
        raise FormatError(f"{name}: write [[{heading}]] with two brackets above a record.")
    kind: type[Paper | Excluded] = Excluded if heading == "excluded" else Paper
    return [CheckedRow(file=name, number=n, kind=kind, fields=fields) for n, fields in enumerate(records, 1)]
