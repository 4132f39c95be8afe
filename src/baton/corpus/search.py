"""One record from whatever a reader has of it: a key, a recipe's name, an arXiv number, or part of the title."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from baton.corpus.record import VOCABULARIES, Excluded, Paper
from baton.corpus.records_read import Corpus
from baton.errors import UsageError, closest, nearest

_MOST = 8


def find(corpus: Corpus, given: str) -> Paper | Excluded:
    """The record that is meant; an error names the nearest, or those between which it is open."""
    records: tuple[Paper | Excluded, ...] = (*corpus.all_papers, *corpus.excluded)
    wanted = _plain(given)
    number = re.search(r"(\d{4}\.\d{4,5})(v\d+)?\b", given)
    if number:
        for record in records:
            if _arxiv(record) == number[1]:
                return record
        raise UsageError(
            f"no record has the arXiv number {number[1]}. Part of the title may do, or: baton corpus list"
        )
    for names in (_keys, _titles):
        exact = [record for record in records if _joined(wanted) in map(_joined, names(record))]
        if len(exact) == 1:
            return exact[0]
    within = [record for record in records if wanted and _within(wanted, record)]
    if len(within) == 1:
        return within[0]
    if within:
        shown = ", ".join(record.key for record in within[:_MOST])
        more = f" and {len(within) - _MOST} more" if len(within) > _MOST else ""
        raise UsageError(f"{given!r} is in {len(within)} records: {shown}{more}. Give one of these keys.")
    raise UsageError(f"there is no record {given!r}. {_nearest(wanted, records)}")


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


def _joined(text: str) -> str:
    """drmas and dr mas are one name."""
    return text.replace(" ", "")


def _arxiv(record: Paper | Excluded) -> str | None:
    return record.arxiv if isinstance(record, Paper) else record.identifier.removeprefix("arXiv:")


def _keys(record: Paper | Excluded) -> set[str]:
    """The key, the key without its year, and the recipe that is named after this paper."""
    key = _plain(record.key)
    names = {key, re.sub(r" ?(19|20)\d\d$", "", key)}
    if isinstance(record, Paper) and record.recipe is not None and record.same_mechanism is None:
        names.add(_plain(record.recipe))
    return names


def _titles(record: Paper | Excluded) -> set[str]:
    """The title, and what stands before its colon, by which most papers are known."""
    return {_plain(record.title), _plain(record.title.partition(":")[0])}


def _within(wanted: str, record: Paper | Excluded) -> bool:
    text = f" {_plain(record.key)} | {_plain(record.title)} "
    if isinstance(record, Paper):
        text += f"| {_plain(record.first_author)} | {_plain(record.about)} "
        if record.recipe is not None:
            text += f"| {_plain(record.recipe)} "
    return f" {wanted}" in text


def _nearest(wanted: str, records: tuple[Paper | Excluded, ...]) -> str:
    """The key whose key, recipe, short title or title is nearest."""
    names = {name: record.key for record in records for name in (*_titles(record), *_keys(record))}
    close = closest(wanted, names)
    return f"Did you mean {names[close]!r}?" if close is not None else "Type: baton corpus list"


# Picks records by any of their fields.
#
# A controlled field is matched exactly, `NA` for none; a text is matched where it occurs, in any case; a year may be
# a range. Several values of one field are alternatives, several fields are conditions.

_PARTS = ("covers", "sparse", "entry_card", "card", "ours")
PAPER_FIELDS = tuple(name for name in Paper.__struct_fields__ if name not in _PARTS)
EXCLUDED_FIELDS = Excluded.__struct_fields__

YES_OR_NO = ("sole_author", "counterfactual", "thirteen")

_R = TypeVar("_R", Paper, Excluded)
_YES_NO = {"yes": True, "no": False}


def select(records: Iterable[_R], wanted: Mapping[str, Sequence[str]]) -> list[_R]:
    """The records that have, in every field named, one of the values given."""
    kept = list(records)
    for field, values in wanted.items():
        known = EXCLUDED_FIELDS if kept and isinstance(kept[0], Excluded) else PAPER_FIELDS
        if kept and field not in known:
            raise UsageError(f"records have no field {field!r}. {nearest(field, known)}")
        tests = [_test(field, value) for value in values]
        kept = [record for record in kept if any(test(getattr(record, field)) for test in tests)]
    return kept


def _test(field: str, value: str) -> Any:
    if field in VOCABULARIES:
        return _word(field, value)
    if field == "year":
        return _year(value)
    if field in YES_OR_NO:
        if value not in _YES_NO:
            raise UsageError(f"{field}: {value!r} is neither yes nor no. {nearest(value, _YES_NO)}")
        return lambda given: given is _YES_NO[value]
    if value == "NA":
        return lambda given: given is None
    return lambda given: value.lower() in _text(given).lower()


def _word(field: str, value: str) -> Any:
    if value == "NA":
        return lambda given: given is None or given == ()
    if value not in VOCABULARIES[field]:
        hint = nearest(value, (*VOCABULARIES[field], "NA"))
        raise UsageError(f"there is no {field} {value!r}. {hint}")
    return lambda given: value in given if isinstance(given, tuple) else given == value


def _year(value: str) -> Any:
    years = re.fullmatch(r"(\d{4})(?:-(\d{4}))?", value)
    if years is None:
        raise UsageError(f"year {value!r} is not a year. Type: 2026, or 2024-2026")
    first, last = int(years[1]), int(years[2] or years[1])
    return lambda given: first <= given <= last


def _text(given: object) -> str:
    return " ".join(given) if isinstance(given, tuple) else "" if given is None else str(given)
