"""How `baton corpus` looks in a terminal. Every function gives lines of (text, style)."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence

from baton.compose.corpus_recipes import train_line
from baton.corpus import (
    TAGS,
    Card,
    ClaimFinding,
    Covered,
    EntryCard,
    Excluded,
    Paper,
    Stats,
    SurveyClaim,
    tag,
)
from baton.view.terminal.fitting import Line, table_lines
from baton.view.terminal.screen import columns, room
from baton.view.text import count

_INDENT = 16
_TITLE_ROOM = 50
_TIE = "\xa0"  # a space that no line is broken at; printed as a plain one
_VERDICTS = {"holds": "green", "does not hold": "red", "not in the data": "yellow"}


def stats_lines(found: Stats) -> list[Line]:
    lines: list[Line] = [[(f"{found.retained} retained, {found.excluded} excluded", "bold")]]
    for field, counts in (
        *found.counts.items(),
        ("excluded at", found.stages),
        ("because of", found.grounds),
    ):
        said = "  ".join(f"{word}{_TIE}{n}" for word, n in counts.items())
        lines += named(field, said)
    for title, table in (
        ("reward x credit", found.reward_by_credit),
        ("form x credit", found.form_by_credit),
        ("category x verified", found.category_by_verified),
    ):
        lines += [[], [(title, "bold")], *_crossed(table)]
    return lines


def row_lines(rows: Sequence[Paper] | Sequence[Excluded]) -> list[Line]:
    """A line for each record, with its title; the title is below where a screen is narrow, and cut in a pipe."""
    total: Line = [(count(len(rows), "record"), "bold")]
    if not rows:
        return [total]
    table = [_cells(row) for row in rows]
    start = sum(max(len(row[k]) for row in table) + 2 for k in range(len(table[0]) - 1))
    if room() is not None and columns() - start < _TITLE_ROOM:
        lines = table_lines([row[:-1] for row in table], room(), head="")
        if len(lines) == len(table):
            titled = zip(lines, table, strict=True)
            return [*(each for line, row in titled for each in (line, [(f"  {row[-1]}", "dim")])), total]
    most = max(20, columns() - start)
    return [*table_lines([(*row[:-1], _cut(row[-1], most)) for row in table], room(), head=""), total]


def _cut(title: str, most: int) -> str:
    return title if len(title) <= most else title[: most - 1].rstrip() + "…"


def _cells(row: Paper | Excluded) -> tuple[str, ...]:
    if isinstance(row, Excluded):
        return row.key, row.stage, row.ground, row.family, row.title
    return row.key, str(row.year), *(tag(row, field) for field in ("reward", "credit", "form")), row.title


def record_lines(record: Paper | Excluded, installed: Collection[str], *, in_pool: bool = True) -> list[Line]:
    lines: list[Line] = [[(f"{record.key}  ", "bold"), (record.title, "bold")]]
    if isinstance(record, Excluded):
        lines += named(
            "left out", f"{record.screened}, {record.stage} screening, {record.ground}: {record.why}"
        )
        lines += named("found by", f"{record.family}, {record.source}, {record.identifier}")
        return lines + named("link", record.link)
    affiliation = f" ({record.affiliation})" if record.affiliation else ""
    lines += named("by", f"{record.first_author}{affiliation}, {record.year}, {record.venue}")
    version = f" {record.version}" if record.version else ""
    lines += named("read", (f"arXiv {record.arxiv}{version}" if record.arxiv else version.strip()))
    for link in record.links:
        lines += named("link", link)
    if not in_pool:
        lines += named("pool", "not in the survey's pool; Baton adds it")
    lines += named("about", record.about)
    lines += named("note", record.note)
    lines += named("tags", "  ".join(f"{field}{_TIE}{tag(record, field)}" for field in TAGS))
    lines += named("source class", record.source_class)
    lines += named("decisions", " ".join(record.decisions))
    if record.also_decides:
        lines += named("also decides", f"{' '.join(record.also_decides)} (Baton's reading)")
    lines += named("evaluates", " ".join(record.evaluates))
    for correction in record.ours:
        lines += named("survey says", f"{correction.field}: {correction.survey}")
        lines += named("Baton says", f"{correction.ours}. {correction.why}", "yellow")
    if record.sparse is not None:
        lines += named(
            "tagged for", f"{record.sparse.why} {record.sparse.boundary} ({record.sparse.reading})"
        )
    lines += named("borderline", record.borderline)
    if record.entry_card is not None:
        lines += _entry_card(record.entry_card)
    if record.card is not None:
        lines += _card(record.card)
    return lines + _runs(record, installed)


def _runs(paper: Paper, installed: Collection[str]) -> list[Line]:
    """How to run it, or why that cannot be."""
    if paper.recipe is not None:
        lines = named("recipe", paper.same_mechanism)
        if paper.recipe in installed:
            return [*lines, *named("run it", train_line(paper.recipe), "green")]
        missing = f"recipe {paper.recipe} is not installed here; once it is: {train_line(paper.recipe)}"
        return [*lines, *named("run it", missing, "yellow")]
    lines = named("recipe", paper.unpublished and f"no formula published. {paper.unpublished}")
    return lines + named("recipe", paper.not_written and f"none. {paper.not_written}")


def claim_lines(
    found: Sequence[tuple[SurveyClaim, ClaimFinding]], records: Mapping[str, Paper | Excluded]
) -> list[Line]:
    """Every claim with the rows behind it; a row of a sparse cell with why it stands there."""
    lines: list[Line] = []
    for claim, finding in found:
        lines.append([(f"{finding.verdict.upper()}  ", _VERDICTS[finding.verdict]), (claim.name, "bold")])
        lines += named("survey says", claim.says)
        lines += named("records say", finding.found)
        lines += named("but", claim.boundary, "dim")
        cell = claim.name.removesuffix("-credit")
        for record in (records[key] for key in finding.rows):
            lines += named("row", f"{record.key}  {record.title}", "dim")
            if isinstance(record, Paper) and record.sparse is not None and record.credit == cell:
                lines += named("", f"{record.sparse.why} {record.sparse.boundary} ({record.sparse.reading})")
        lines.append([])
    return lines[:-1]


def card_lines(papers: Sequence[Paper], installed: Collection[str]) -> list[Line]:
    """The survey's card where it has one, what Baton reads otherwise, and the method as a composition."""
    lines: list[Line] = []
    for paper in papers:
        lines += [[(f"{paper.key}  ", "bold"), (paper.title, "")]]
        lines += named("who, when", f"{paper.first_author}, {paper.year}, {paper.venue}")
        if paper.entry_card is None:
            lines += named("form", tag(paper, "form"))
        else:
            lines += _entry_card(paper.entry_card)
        for correction in paper.ours:
            lines += named(
                "Baton reads", f"{correction.field}: {correction.ours}. {correction.why}", "yellow"
            )
        if paper.card is not None:
            lines += _card(paper.card, whole=True)
        lines += [*_runs(paper, installed), []]
    return lines[:-1]


def _entry_card(card: EntryCard) -> list[Line]:
    """What the survey says of an entry, part by part."""
    parts = ("claim", "reward", "credit", "form", "result", "limitation")
    return [line for part in parts for line in named(part, getattr(card, part))]


def _card(card: Card, *, whole: bool = False) -> list[Line]:
    """A card says of every part either what it is or that it is not known; inside a record, only what it is."""
    unknown = "not known" if whole else None
    lines: list[Line] = []
    for field in ("learns", "reward", "credit", "group", "loss"):
        known = getattr(card, field) or unknown
        lines += named(f"{field} rule" if field in ("reward", "credit") else field, known)
    return lines + named("evidence", card.evidence) + named("caution", card.caution)


def coverage_lines(rows: Sequence[Covered], without_a_paper: Sequence[str]) -> list[Line]:
    lines: list[Line] = []
    width = max(len(row.key) for row in rows)
    for status, style, explained in (
        ("recipe", "green", "runs here"),
        ("recipe not installed", "yellow", "named, but not in this installation"),
        ("no formula published", "", "none in the sources Baton was written from; what is known"),
        ("no recipe", "", "the formula is public, Baton has no recipe"),
    ):
        chosen = [row for row in rows if row.status == status]
        if not chosen:
            continue
        lines += [[(f"{status}: ", "bold"), (f"{count(len(chosen), 'method')}, {explained}", "dim")]]
        for row in chosen:
            command = f"{train_line(row.recipe):<30}" if row.recipe is not None else ""
            said = textwrap.wrap(row.said, max(40, columns() - width - 4 - len(command))) or [""]
            lines.append([(f"  {row.key:<{width}}  ", ""), (command, style), (said[0], "dim")])
            lines += [[(" " * (width + 4 + len(command)), ""), (more, "dim")] for more in said[1:]]
        lines.append([])
    if without_a_paper:
        lines += named("Baton's own", "  ".join(without_a_paper))
    return lines


def _crossed(table: Mapping[str, Mapping[str, int]]) -> list[Line]:
    names = list(next(iter(table.values())))
    rows = [[row, *(str(cells[name] or ".") for name in names)] for row, cells in table.items()]
    return counted([["", *names], *rows])


def counted(rows: Sequence[Sequence[str]], *, gap: int = 14) -> list[Line]:
    """Rows of counts under their heads: in columns of one width where there is room for them."""
    wide = room()
    if wide is None or max(len(row[0]) for row in rows) + 2 + gap * (len(rows[0]) - 1) <= wide:
        rows = [[row[0], *(f"{cell:>{gap - 2}}" for cell in row[1:])] for row in rows]
    return table_lines(rows, wide, right=range(1, len(rows[0])))


def named(name: str, said: str | None, style: str = "") -> list[Line]:
    """A name and what is said under it, wrapped; nothing where nothing is said."""
    if not said:
        return []
    wrapped = textwrap.wrap(
        said, max(40, columns() - _INDENT), break_long_words=False, break_on_hyphens=False
    )
    return [
        [(f"  {name if k == 0 else '':<{_INDENT - 2}}", "dim"), (text.replace(_TIE, " "), style)]
        for k, text in enumerate(wrapped)
    ]
