"""Counts of the pool: every tag, the stages of exclusion, the three cross-tabs of the survey, and its timeline.

Invariant: each count of a field sums to the number of records, each cross-tab to the same; the timeline has every entry
with a unit of credit once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from baton.corpus.record import TAGS, VOCABULARIES, Paper, tag
from baton.corpus.records_read import Corpus


class Stats(Struct, frozen=True, kw_only=True):
    """The counts, most frequent first, NA last."""

    retained: int
    excluded: int
    counts: dict[str, dict[str, int]]
    """Field -> tag -> how many."""
    reward_by_credit: dict[str, dict[str, int]]
    form_by_credit: dict[str, dict[str, int]]
    category_by_verified: dict[str, dict[str, int]]
    stages: dict[str, int]
    grounds: dict[str, int]


def stats(corpus: Corpus, *, ours: bool = False) -> Stats:
    """The counts by the survey's tags; with `ours`, as Baton corrects them."""
    papers = corpus.papers

    def pairs(field: str, by: str = "credit") -> Iterable[tuple[str, str]]:
        return ((tag(paper, field, ours=ours), tag(paper, by, ours=ours)) for paper in papers)

    counts = {field: _ranked(tag(paper, field, ours=ours) for paper in papers) for field in TAGS}
    return Stats(
        retained=len(papers),
        excluded=len(corpus.excluded),
        counts=counts | {"year": dict(sorted(_ranked(str(paper.year) for paper in papers).items()))},
        reward_by_credit=_crossed(pairs("reward")),
        form_by_credit=_crossed(pairs("form")),
        category_by_verified=_crossed(pairs("category", "verified")),
        stages=_ranked(record.stage for record in corpus.excluded),
        grounds=_ranked(record.ground for record in corpus.excluded),
    )


FIRST_QUARTER = "2024 Q4"
"""Where the survey's timeline begins (figure 2); what is older stands under `earlier`."""
EARLIER = "earlier"


def timeline(papers: Iterable[Paper]) -> dict[str, dict[str, list[str]]]:
    """Unit of credit -> quarter -> keys, by the month that an arXiv number tells.

    An entry without a number has its year alone, and stands after that year's quarters.
    """
    found: dict[str, dict[str, list[str]]] = {unit: {} for unit in VOCABULARIES["credit"]}
    for paper in papers:
        if paper.credit is not None:
            found[paper.credit].setdefault(quarter(paper), []).append(paper.key)
    return {
        unit: {when: sorted(keys) for when, keys in sorted(row.items(), key=_in_time)}
        for unit, row in found.items()
    }


def quarter(paper: Paper) -> str:
    """The quarter it was submitted in, as far as its arXiv number tells; else its year."""
    if paper.arxiv is None:
        when = f"{paper.year} undated"
    else:
        year, month = 2000 + int(paper.arxiv[:2]), int(paper.arxiv[2:4])
        when = f"{year} Q{(month + 2) // 3}"
    return EARLIER if when < FIRST_QUARTER else when


def _in_time(item: tuple[str, object]) -> tuple[bool, str, bool, str]:
    """Earlier ones first; within a year those with a quarter first."""
    when = item[0]
    return when != EARLIER, when[:4], "undated" in when, when


def _ranked(tags: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(tags).items(), key=lambda item: (item[0] == "NA", -item[1], item[0])))


def _crossed(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Row -> column -> count, zeros included, so that an empty cell is seen to be empty."""
    counted = Counter(pairs)
    rows = _ranked(row for (row, _), n in counted.items() for _ in range(n))
    columns = _ranked(column for (_, column), n in counted.items() for _ in range(n))
    return {row: {column: counted[row, column] for column in columns} for row in rows}
