"""E1, task success: verified success, item-F1 for lists and tables, normalised regret.

S = P(verified success). Item-F1 as WideSearch scores tables: of sets of rows, or of cells where the
gold data names the columns that identify a row. Normalised regret = (V* - V_pi)/(V* - V_ref): 0 is
optimal, 1 is as good as the reference; below 0 is luck, above 1 is worse than the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from baton.errors import TraceError
from baton.measure.figure import Figure, NotMeasured, mean, not_measured, proportion
from baton.measure.measured import MeasuredTrace, plain
from baton.measure.metric import metric


def success(readings: Iterable[MeasuredTrace]) -> Figure:
    """Share of traces whose answer is verified right, with Wilson's interval."""
    right: list[bool] = []
    reasons: list[Figure] = []
    for reading in readings:
        try:
            score = reading.outcome
        except TraceError as error:
            reasons.append(not_measured(str(error)))
            continue
        gold = reading.gold
        if not 0 <= score <= 1 or (gold.optimum is not None and gold.verify is None):
            reasons.append(not_measured("the outcome is a return and no verdict: see normalised regret"))
            continue
        right.append(reading.succeeded)
    return proportion(sum(right), len(right)) if right else mean(reasons)


@metric("outcome", "E1", bounds=(-math.inf, math.inf))
def outcome(reading: MeasuredTrace) -> float:
    """Score of the team's answer, or a game's return."""
    return reading.outcome


@metric("item_f1", "E1", bounds=(0.0, 1.0))
def item_f1(reading: MeasuredTrace) -> float:
    """F1 of the answer's items against the right ones."""
    gold = reading.gold
    if gold.items is None:
        raise NotMeasured("no right items are given")
    return f1(items_in(reading.answer, gold.key), _items(gold.items, gold.key))


def f1(found: Iterable[str], right: Iterable[str]) -> float:
    """2 PR/(P + R) of two sets; nothing found where nothing was to be found is right."""
    found, right = set(found), set(right)
    if not found and not right:
        return 1.0
    return 2 * len(found & right) / (len(found) + len(right))


def items_in(text: str, key: Sequence[str] = ()) -> frozenset[str]:
    """Items of an answer: of a JSON list its entries or its rows' cells, of an object its pairs, else its lines."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        value = None
    if isinstance(value, list):
        return _items(value, key)
    if isinstance(value, dict):
        return frozenset(_named((), name, entry) for name, entry in value.items())
    return frozenset(item for line in text.splitlines() if (item := plain(line.lstrip("-*• \t"))))


def _items(values: Iterable[Any], key: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for value in values:
        if isinstance(value, Mapping) and key:
            row = tuple(_flat(value.get(column)) for column in key)
            found |= {_named(row, name, entry) for name, entry in value.items() if name not in key}
            found.add(_named(row, "", ""))
        else:
            found.add(_flat(value))
    return frozenset(found)


def _named(row: tuple[str, ...], name: str, entry: Any) -> str:
    return msgspec.json.encode([*row, plain(name), _flat(entry)]).decode()


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        value = {plain(str(name)): _flat(entry) for name, entry in value.items()}
    return msgspec.json.encode(value, order="deterministic").decode()


def normalised_regret(returns: Sequence[float], optimum: float, reference: float) -> Figure:
    """(V* - V_pi)/(V* - V_ref) from a policy's returns."""
    if optimum <= reference:
        return not_measured("the reference is as good as the optimum, so there is no regret to compare with")
    return mean((optimum - value) / (optimum - reference) for value in returns)


@metric("normalised_regret", "E1", bounds=(-math.inf, math.inf))
def regret(reading: MeasuredTrace) -> float:
    """(V* - V)/(V* - V_ref): 0 as good as the optimum, 1 as good as the reference."""
    gold = reading.gold
    if gold.optimum is None or gold.reference is None:
        raise NotMeasured("no solver's optimum and reference value are given")
    found = normalised_regret([reading.outcome], gold.optimum, gold.reference)
    if found.value is None:
        raise NotMeasured(found.why_not)
    return found.value
