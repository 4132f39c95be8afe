"""The survey's own tables in a terminal: coverage map, timeline, evidence, ledger, borderline cases, envelopes.

Every function gives lines of (text, style).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from baton.corpus import (
    CLAIM_KINDS,
    ENVELOPES,
    EVIDENCE,
    INDUSTRY,
    Corpus,
    Covers,
    EnvelopePlace,
    Excluded,
    Paper,
    place,
)
from baton.view.terminal.corpus_tables import counted, named
from baton.view.terminal.fitting import Line
from baton.view.text import count, printable

_ONE_BY_ONE = 4
_MARKS = {"direct": "●", "indirect": "○", "none": "–"}


class PlacedTrace(Struct, frozen=True, kw_only=True):
    """A trace by the figures that envelopes are about."""

    trace_id: str
    sub_agents: int | None
    """None: agents spawn each other in a circle, so nobody can count them."""
    steps: int

    @property
    def where(self) -> EnvelopePlace | None:
        """Its place among the envelopes; None where its team cannot be counted."""
        return None if self.sub_agents is None else place(self.sub_agents, self.steps)


def map_lines(corpus: Corpus) -> list[Line]:
    """Entry by dimension, for the entries that the survey's map has."""
    rows = [(paper.key, paper.covers) for paper in corpus.papers if paper.covers is not None]
    fields = Covers.__struct_fields__
    marks = [[key, *(_MARKS[getattr(covers, name)] for name in fields)] for key, covers in rows]
    direct = [str(sum(getattr(covers, name) == "direct" for _, covers in rows)) for name in fields]
    lines = counted([["", *fields], *marks, ["direct", *direct]], gap=15)
    rest = len(corpus.papers) - len(rows)
    return [
        *lines,
        [],
        [("● studies it directly, ○ bears on it indirectly, – not at all.", "dim")],
        [(f"The survey maps {count(len(rows), 'record')}; {rest} of its pool are not on the map.", "dim")],
    ]  # fmt: skip


def timeline_lines(found: Mapping[str, Mapping[str, Sequence[str]]]) -> list[Line]:
    """Unit by unit: who came when."""
    lines: list[Line] = []
    for unit, row in found.items():
        total = sum(map(len, row.values()))
        lines.append([(f"{unit}  ", "bold"), (count(total, "record"), "dim")])
        for when, keys in row.items():
            lines += named(when, "  ".join(keys))
    return lines


def evidence_lines(corpus: Corpus, chosen: Sequence[str]) -> list[Line]:
    """What each class of sources may support, and which entries are of it."""
    table = [[f"{row.source_class:<14}", *(getattr(row, kind) for kind in CLAIM_KINDS)] for row in EVIDENCE]
    lines = counted([[" " * 14, *CLAIM_KINDS], *table])
    for row in EVIDENCE:
        if chosen and row.source_class not in chosen:
            continue
        keys = [paper.key for paper in corpus.papers if paper.source_class == row.source_class]
        lines += [[], [(f"{row.source_class}  ", "bold"), (f"{row.about}, {count(len(keys), 'record')}", "")]]
        lines += named("used for", row.used_for)
        lines += named("not for", row.not_used_for)
        lines += named("entries", "  ".join(keys) if chosen else None, "dim")
    return lines  # fmt: skip


def ledger_lines(corpus: Corpus) -> list[Line]:
    """The claims about industry, each with how sure it is and where it ends."""
    classes = {paper.key: paper.source_class for paper in corpus.papers}
    lines: list[Line] = []
    for each in INDUSTRY:
        lines += [[(f"{each.confidence.upper()}  ", "bold"), (each.claim, "")]]
        lines += named("read in", f"{each.read_in} ({each.entry}, {classes[each.entry]})")
        lines += [*named("but", each.boundary, "dim"), []]
    return lines[:-1]


def borderline_lines(corpus: Corpus) -> list[Line]:
    """Who was kept or left out on the border of the pool, and why."""
    kept: list[Paper | Excluded] = [paper for paper in corpus.papers if paper.borderline]
    out: list[Paper | Excluded] = [record for record in corpus.excluded if record.borderline]
    lines: list[Line] = []
    for word, style, rows in (("KEPT", "green", kept), ("LEFT OUT", "yellow", out)):
        for row in rows:
            lines += [[(f"{word}  ", style), (f"{row.key}  ", "bold"), (row.title, "")]]
            lines += named("because", row.borderline)
    return lines


def envelope_lines(traces: Sequence[PlacedTrace]) -> list[Line]:
    """The envelopes, and where traces stand among them."""
    lines: list[Line] = [[(f"{'':<20}{'sub-agents':>12}{'length':>18}  what of it is public", "dim")]]
    for each in ENVELOPES:
        team = "not told" if each.sub_agents is None else f"{each.sub_agents:,}"
        low, high = each.steps
        length = f"{high:,} {each.unit}" if low == high else f"{low:,} to {high:,} {each.unit}"
        source = "the survey's own" if each.source_class is None else each.source_class
        lines.append([(f"{each.name:<20}{team:>12}{length:>18}  {each.role}, {source}", "")])
        lines += named("", f"{each.about}. {each.boundary}", "dim")
    if len(traces) <= _ONE_BY_ONE:
        return lines + [line for each in traces for line in ([], *_placed(each, printable(each.trace_id)))]
    longest = max(traces, key=lambda each: each.steps)
    largest = max(traces, key=lambda each: each.sub_agents or 0)
    lines += [[], [(count(len(traces), "trace"), "bold")]]
    lines += _placed(largest, f"the largest team, {printable(largest.trace_id)}")
    return lines + _placed(longest, f"the longest, {printable(longest.trace_id)}")


def _placed(trace: PlacedTrace, title: str) -> list[Line]:
    where = trace.where
    lines: list[Line] = [[(title, "bold")]]
    if where is None:
        return [*lines, *named("team", "cannot be counted: agents spawn each other in a circle")]
    team = f"fits {where.by_team}" if where.by_team else "larger than all that is published"
    length = f"fits {where.by_length}" if where.by_length else "longer than all that is published"
    low, high = where.baselines
    lines += named("sub-agents", f"{where.sub_agents:,}: {team}")
    lines += named("steps", f"{where.steps:,}: {length}")
    lines += named("cost", f"{low:,.2g} to {high:,.2g} single-agent rollouts, all steps alike")
    return lines
