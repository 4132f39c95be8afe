"""Checks on records: vocabularies, identifiers, duplicates, and that every method is accounted for.

Invariant: a problem names its row (file, number, key) and what to write instead; all are found at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.corpus.record import (
    TAGS,
    VOCABULARIES,
    Card,
    Correction,
    Covers,
    EntryCard,
    Excluded,
    Paper,
    Sparse,
)
from baton.errors import nearest

_PATTERNS = {
    "paper.key": (r"[a-z0-9]+(-[a-z0-9]+)*", "small letters, digits and single hyphens"),
    "excluded.key": (r"E\d{3}", "E and three digits"),
    "arxiv": (r"\d{4}\.\d{4,5}", "the form 2602.08847"),
    "version": (r"(v\d+ )?\d{4}-\d{2}-\d{2}", "the form 'v1 2026-02-09' or '2026-02-09'"),
    "screened": (r"\d{4}-\d{2}-\d{2}", "the form 2026-04-26"),
    "link": (r"https?://\S+", "an address that starts with https://"),
    "recipe": (r"[a-z0-9]+(-[a-z0-9]+)*", "small letters, digits and single hyphens"),
}
_ACCOUNTS = ("recipe", "unpublished", "not_written")
_PARTS: dict[str, type[Struct]] = {
    "card": Card,
    "entry_card": EntryCard,
    "covers": Covers,
    "sparse": Sparse,
    "ours": Correction,
}


class CheckedRow(Struct, frozen=True, kw_only=True):
    """A record as it stands in its file."""

    file: str
    number: int
    kind: type[Paper | Excluded]
    fields: dict[str, Any]

    @property
    def where(self) -> str:
        key = self.fields.get("key")
        return f"{self.file}, record {self.number}" + (f" ({key})" if isinstance(key, str) else "")


def row_problems(row: CheckedRow) -> list[str]:
    """What is wrong with one record by itself."""
    found = [*_names(row.fields, row.kind), *_words(row.fields)]
    if not found:
        try:
            record = msgspec.convert(row.fields, row.kind)
        except msgspec.ValidationError as error:
            found = [str(error).replace(" - at `$.", ", at `")]
        else:
            found = [*_identifiers(record), *(_paper(record, row.file) if isinstance(record, Paper) else ())]
    return [f"{row.where}: {problem}" for problem in found]


def problems(rows: Iterable[CheckedRow]) -> list[str]:
    """What is wrong with records, one by one and beside each other."""
    rows = list(rows)
    found = [problem for row in rows for problem in row_problems(row)]
    return found + list(_duplicates(rows))


def _names(given: dict[str, Any], kind: type[Struct], under: str = "") -> Iterator[str]:
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            yield f"there is no field {under}{name!r}. {nearest(name, known)}"
    for field in structs.fields(kind):
        if field.required and field.name not in given:
            yield f"{under}{field.name!r} is missing."
    for name, part in _PARTS.items():
        inner = given.get(name) if name in known else None
        for one in inner if isinstance(inner, list) else [inner] if isinstance(inner, dict) else []:
            yield from _names(one, part, f"{name}.")


def _words(given: dict[str, Any]) -> Iterator[str]:
    for field, words in VOCABULARIES.items():
        value = given.get(field)
        for word in value if isinstance(value, list) else [value] if isinstance(value, str) else []:
            if word not in words:
                also = " Leave the field out for NA." if word == "NA" else ""
                yield f"{field} = {word!r} is not in the vocabulary. {nearest(str(word), words)}{also}"


def _identifiers(record: Paper | Excluded) -> Iterator[str]:
    if isinstance(record, Paper):
        values = [("paper.key", record.key), ("arxiv", record.arxiv), ("version", record.version)]
        values += [("recipe", record.recipe), *(("link", link) for link in record.links)]
    else:
        values = [("excluded.key", record.key), ("screened", record.screened), ("link", record.link)]
    for name, value in values:
        pattern, expected = _PATTERNS[name]
        if value is not None and not re.fullmatch(pattern, value):
            yield f"{name.rpartition('.')[2]} = {value!r}; expected {expected}."
    if isinstance(record, Paper):
        if not record.links:
            yield "links is empty; give at least one address."
        if not 1900 <= record.year <= 2100:
            yield f"year = {record.year}; expected four digits."
        for link in record.links:
            linked = re.fullmatch(r"https?://arxiv\.org/abs/([\d.]+)", link)
            if linked and linked[1] != record.arxiv:
                yield f"links to arXiv {linked[1]} while arxiv is {record.arxiv!r}; they must agree."


def _paper(paper: Paper, file: str) -> Iterator[str]:
    if file != "beyond.toml" and file != f"{paper.category}.toml":
        yield f"category = {paper.category!r} belongs in {paper.category}.toml."
    accounts = [name for name in _ACCOUNTS if getattr(paper, name) is not None]
    if paper.is_method and len(accounts) != 1:
        yield (
            f"an entry with an RL method needs exactly one of {', '.join(_ACCOUNTS)}; "
            f"it has {', '.join(accounts) or 'none'}."
        )
    if not paper.is_method and accounts:
        yield f"{accounts[0]} is for entries with an RL method; this one trains nothing of its own."
    if paper.same_mechanism is not None and paper.recipe is None:
        yield "same_mechanism needs a recipe."
    if paper.recipe is not None and paper.card is None:
        yield "it has a recipe, so it needs a table [paper.card]."
    if paper.thirteen != (paper.entry_card is not None):
        yield "one of the thirteen has both, thirteen = true and a table [paper.entry_card]; any other has neither."
    for correction in paper.ours:
        yield from _correction(paper, correction)


def _correction(paper: Paper, correction: Correction) -> Iterator[str]:
    field = correction.field
    if field not in TAGS:
        known = (*TAGS, "mechanism", "result")
        if field not in known:
            yield f"ours: there is no field {field!r}. {nearest(field, known)}"
        return
    if correction.ours not in VOCABULARIES[field]:
        yield (
            f"ours: {field} = {correction.ours!r} is not in the vocabulary. "
            f"{nearest(correction.ours, VOCABULARIES[field])}"
        )
    if correction.survey != (getattr(paper, field) or "NA"):
        yield f"ours: survey = {correction.survey!r} while the record's {field} is {getattr(paper, field)!r}."


def _duplicates(rows: list[CheckedRow]) -> Iterator[str]:
    seen: dict[tuple[str, str], CheckedRow] = {}
    for row in rows:
        for name, value in _unique(row):
            first = seen.setdefault((name, value), row)
            if first is not row:
                yield f"{row.where}: the same {name} as {first.where}: {value!r}."


def _unique(row: CheckedRow) -> Iterator[tuple[str, str]]:
    """What no two records may share."""
    given = {name: value for name, value in row.fields.items() if isinstance(value, str)}
    if "key" in given:
        yield "key", given["key"]
    if "title" in given:
        yield "title", " ".join(re.findall(r"\w+", given["title"].lower()))
    identifier = given.get("arxiv") or given.get("identifier", "").removeprefix("arXiv:")
    if identifier:
        yield "identifier", identifier
    if "recipe" in given and "same_mechanism" not in given:
        yield "recipe", given["recipe"]
