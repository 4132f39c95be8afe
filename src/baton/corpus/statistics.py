"""Counts of the pool: every tag, the stages of exclusion, and the two cross-tabs of the survey.

Invariant: each count of a field sums to the number of records, each cross-tab to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from baton.corpus.record import TAGS, tag
from baton.corpus.records_read import Corpus


class Stats(Struct, frozen=True, kw_only=True):
    """The counts, most frequent first, NA last."""

    retained: int
    excluded: int
    counts: dict[str, dict[str, int]]
    """Field -> tag -> how many."""
    reward_by_credit: dict[str, dict[str, int]]
    form_by_credit: dict[str, dict[str, int]]
    stages: dict[str, int]
    grounds: dict[str, int]


def stats(corpus: Corpus, *, ours: bool = False) -> Stats:
    """The counts by the survey's tags; with `ours`, as Baton corrects them."""
    papers = corpus.papers

    def pairs(field: str) -> Iterable[tuple[str, str]]:
        return ((tag(paper, field, ours=ours), tag(paper, "credit", ours=ours)) for paper in papers)

    counts = {field: _ranked(tag(paper, field, ours=ours) for paper in papers) for field in TAGS}
    return Stats(
        retained=len(papers),
        excluded=len(corpus.excluded),
        counts=counts | {"year": dict(sorted(_ranked(str(paper.year) for paper in papers).items()))},
        reward_by_credit=_crossed(pairs("reward")),
        form_by_credit=_crossed(pairs("form")),
        stages=_ranked(record.stage for record in corpus.excluded),
        grounds=_ranked(record.ground for record in corpus.excluded),
    )


def _ranked(tags: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(tags).items(), key=lambda item: (item[0] == "NA", -item[1], item[0])))


def _crossed(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Row -> column -> count, zeros included, so that an empty cell is seen to be empty."""
    counted = Counter(pairs)
    rows = _ranked(row for (row, _), n in counted.items() for _ in range(n))
    columns = _ranked(column for (_, column), n in counted.items() for _ in range(n))
    return {row: {column: counted[row, column] for column in columns} for row in rows}
