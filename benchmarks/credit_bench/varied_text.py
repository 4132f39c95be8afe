"""What is left of credit where first answers vary: only the second of two choices matters, and there is no luck.

Exact credit of the second is its worth, of the first nothing. Groups of 8; first answers in 1, 8 or 64 texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from baton.credit import ESTIMATORS, CreditError
from baton.credit.core.covering import Covering
from credit_bench.coverage import ROWS, Row
from credit_bench.two_choices import WORDS, Case, group_of

__all__ = ["TEXTS", "Kept", "varied_text"]

TEXTS = (1, 8, 64)
_NORMALISED = frozenset(
    {
        "group",
        "rank",
        "critical-steps",
        "role-group",
        "agent-group",
        "input-group",
        "turn-group",
        "anchor-group",
    }
    | {"branch-scope"}
)
"""Their credit is in units of the group's spread."""
_OWN = frozenset({"tool-group"})
"""Judges rewards of their own, which have nothing to do with the return."""


class Kept(Struct, frozen=True, kw_only=True):
    """One estimator, for each number of texts."""

    estimator: str
    second: tuple[float | None, ...]
    """Slope of the second choice's credit on its exact credit; 1 is right. None: it credits none."""
    first: tuple[float | None, ...]
    """Root mean square of what the worthless first choice is given, over the deviation of returns."""


def varied_text(num_groups: int, rows: Sequence[Row] = ROWS) -> list[Kept]:
    """Every estimator that reads a log."""
    return [_kept(row, num_groups) for row in rows if row.estimator not in _OWN]


def _kept(row: Row, num_groups: int) -> Kept:
    second: list[float | None] = []
    first: list[float | None] = []
    for texts in TEXTS:
        case = Case(num_texts=texts, group_size=8, worthless=True, luck=0.0)
        unit = case.deviation if row.estimator in _NORMALISED else 1.0
        given: dict[str, list[tuple[float, float]]] = {"spawn": [], "word": []}
        for number in range(num_groups):
            group = group_of(case, number)
            try:
                credits = ESTIMATORS[row.estimator](
                    [row.scored(each) for each in group], **row.settings(case, group)
                )
            except CreditError:  # this group does not show what it compares
                continue
            for each, mine in zip(group, credits, strict=True):
                covering = Covering(each.trace)
                for credit in mine:
                    for place in covering.of(credit):
                        name = each.trace.events[place].id
                        if name in given:
                            given[name].append((credit.value * unit, WORDS[each.word][1]))
        word, spawn = given["word"], given["spawn"]
        second.append(sum(v * t for v, t in word) / sum(t * t for _, t in word) if word else None)
        square = math.fsum(v * v for v, _ in spawn) / len(spawn) if spawn else 0.0
        first.append(math.sqrt(square) / case.deviation if spawn else None)
    return Kept(estimator=row.title or row.estimator, second=tuple(second), first=tuple(first))
