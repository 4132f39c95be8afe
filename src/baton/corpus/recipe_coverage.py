"""Which recipe runs which method.

Invariant: every entry with an RL method is there once, with a recipe, with "no formula published" and what is
known, or with the reason why a public formula has no recipe. A recipe that is named and not installed is said
not to be.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from baton.corpus.record import Paper
from baton.corpus.records_read import Corpus

Status = Literal["recipe", "recipe not installed", "no formula published", "no recipe"]


class Covered(Struct, frozen=True, kw_only=True):
    """How far Baton runs one paper."""

    key: str
    status: Status
    recipe: str | None
    said: str
    """Evidence for a recipe; what is known, or why, where there is none."""


def coverage(corpus: Corpus, installed: Collection[str]) -> list[Covered]:
    """One row for every entry with an RL method, those beyond the pool last."""
    return [_covered(paper, installed) for paper in corpus.all_papers if paper.is_method]


def _covered(paper: Paper, installed: Collection[str]) -> Covered:
    if paper.recipe is not None:
        evidence = paper.card.evidence if paper.card is not None else ""
        return Covered(
            key=paper.key,
            status="recipe" if paper.recipe in installed else "recipe not installed",
            recipe=paper.recipe,
            said=f"{evidence} {paper.same_mechanism or ''}".strip(),
        )
    if paper.unpublished is not None:
        return Covered(key=paper.key, status="no formula published", recipe=None, said=paper.unpublished)
    return Covered(key=paper.key, status="no recipe", recipe=None, said=paper.not_written or "")
