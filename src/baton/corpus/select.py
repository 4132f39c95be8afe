"""Picks records by any of their fields.

A controlled field is matched exactly, `NA` for none; a text is matched where it occurs, in any case; a year may be
a range. Several values of one field are alternatives, several fields are conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from baton.corpus.record import VOCABULARIES, Excluded, Paper
from baton.errors import UsageError, nearest

__all__ = ["EXCLUDED_FIELDS", "PAPER_FIELDS", "YES_OR_NO", "select"]

PAPER_FIELDS = tuple(name for name in Paper.__struct_fields__ if name not in ("card", "ours"))
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
