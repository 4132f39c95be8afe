"""Gold data from a file of JSON: what is known of the instances of some traces, for all of them or by trace id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from baton.errors import FormatError, UsageError, nearest
from baton.view.text import nearest_name

GoldTables = dict[str, dict[str, Any]]
"""Trace id -> gold data; under "" what holds for every trace."""

REWARD_DATA: Mapping[str, Any] = {
    "answer": str | None,
    "items": tuple[Any, ...] | None,
    "parts": tuple[str, ...] | None,
    "without": dict[str, float] | None,
    "shapley": dict[str, float] | None,
    "solo": float | None,
    "least_work_s": float | None,
}
"""The parts of Gold that rewards read and that are plain data."""
MEASURE_DATA: Mapping[str, Any] = {
    "answer": str | None,
    "items": tuple[Any, ...] | None,
    "key": tuple[str, ...],
    "facts": tuple[str, ...] | None,
    "optimum": float | None,
    "reference": float | None,
    "best_aggregate": float | None,
    "least_work_s": float | None,
    "least_span_s": float | None,
    "slots": int | None,
}
"""Those that measures read."""


def read_gold(path: str, data: Mapping[str, Any]) -> GoldTables:
    """What a file says of the instances; `data` is what it may say."""
    if not Path(path).is_file():
        what = "that is a folder" if Path(path).is_dir() else "there is no such file"
        raise UsageError(f'--gold {path}: {what}. Expected JSON, such as {{"answer": "42"}}')
    try:
        found = msgspec.json.decode(Path(path).read_bytes())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FormatError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(found, dict):
        raise FormatError(f"{path} holds a {type(found).__name__}; expected an object with gold data.")
    by_trace = found and not found.keys() & data.keys() and all(isinstance(v, dict) for v in found.values())
    tables = found if by_trace else {"": found}
    for table in tables.values():
        for key, value in table.items():
            if key not in data:
                raise UsageError(f"{path}: gold data has no {key!r}. {nearest(key, data)}")
            try:
                table[key] = msgspec.convert(value, data[key])
            except msgspec.ValidationError as error:
                raise UsageError(f"{path}: {key}: {error}.") from None
    return tables


def check_gold_keys(path: str, given: GoldTables, known: set[str]) -> None:
    """A key that no trace has is a typing mistake, unless each trace has its own: then the file is of more traces."""
    if "" in given or known <= given.keys():
        return
    for key in given:
        if key not in known:
            raise UsageError(f"{path}: there is no trace {key!r} in there. {nearest_name(key, known)}")


def gold_of(given: GoldTables, trace_id: str) -> dict[str, Any]:
    """What a file says of one trace."""
    return given.get("", {}) | given.get(trace_id, {})
