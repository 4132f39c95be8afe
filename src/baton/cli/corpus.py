"""`baton corpus`: the literature as data: counts, search, claims, and the way from a paper to its recipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from baton.cli.printing import print_json, say
from baton.compose.corpus_recipes import installed_recipes
from baton.compose.runs import traces_at
from baton.corpus import (
    CLAIMS,
    ENVELOPES,
    EVIDENCE,
    EXCLUDED_FIELDS,
    INDUSTRY,
    PAPER_FIELDS,
    VOCABULARIES,
    YES_OR_NO,
    Corpus,
    Excluded,
    Paper,
    bibtex,
    check_claims,
    coverage,
    find,
    load,
    select,
    stats,
    timeline,
)
from baton.errors import TraceError, UsageError, nearest
from baton.trace.acts import chosen
from baton.trace.formats.durable import atomic_file
from baton.trace.graph.lineage import Lineage
from baton.trace.trace import Trace
from baton.view.terminal.corpus_survey import (
    PlacedTrace,
    borderline_lines,
    envelope_lines,
    evidence_lines,
    ledger_lines,
    map_lines,
    timeline_lines,
)
from baton.view.terminal.corpus_tables import (
    card_lines,
    claim_lines,
    coverage_lines,
    record_lines,
    row_lines,
    stats_lines,
)
from baton.view.terminal.screen import emit, take_every_character

_EXAMPLES = """examples:
  baton corpus show dr-mas
  baton corpus show "evolving orchestration"
  baton corpus list --reward hybrid --credit agent --year 2026
  baton corpus list --excluded --stage full_text
  baton corpus coverage
  baton corpus envelopes runs/sum"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    counting = parts.add_parser("stats", help="count every tag, with the three cross-tabs")
    counting.add_argument("--ours", action="store_true", help="by the tags as Baton corrects them")
    listing = parts.add_parser("list", help="the records, by any of their fields")
    _add_filters(listing)
    showing = parts.add_parser("show", help="one record, and how to run it")
    showing.add_argument(
        "key", nargs="+", metavar="KEY", help="a key, a recipe, an arXiv number, or part of a title"
    )
    claims = parts.add_parser(
        "claims", help="check the survey's claims of sparsity, with the rows behind them"
    )
    claims.add_argument("names", nargs="*", metavar="CLAIM", help="only these")
    cards = parts.add_parser("cards", help="the survey's thirteen cards, with the methods as compositions")
    cards.add_argument("keys", nargs="*", metavar="KEY", help="these, instead of the thirteen")
    cards.add_argument("--all", action="store_true", help="every record that has a card")
    covering = parts.add_parser("coverage", help="which recipe runs which method")
    bib = parts.add_parser("bib", help="BibTeX of all retained records, or of some")
    shows = {
        counting: _stats, listing: _list, showing: _show, claims: _claims, cards: _cards, covering: _coverage,
        **_add_tables(parts), bib: _bib,
    }  # fmt: skip
    for part, show in shows.items():
        part.set_defaults(show=show)
        if part is not bib:
            part.add_argument("--json", action="store_true", help="as JSON")
    bib.add_argument("keys", nargs="*", metavar="KEY", help="only these")
    bib.add_argument("--out", metavar="PATH", help="write it there")


def _add_tables(
    parts: argparse._SubParsersAction[argparse.ArgumentParser],
) -> dict[argparse.ArgumentParser, Callable[[Corpus, argparse.Namespace], int]]:
    """The parts that are tables of the survey, and what shows each."""
    mapped = parts.add_parser(
        "map", help="which entry bears on reward, credit, orchestration, evaluation, safety"
    )
    timed = parts.add_parser("timeline", help="the entries by quarter, for each unit of credit")
    classes = parts.add_parser("evidence", help="what each class of sources may support")
    classes.add_argument("classes", nargs="*", metavar="CLASS", help="name the entries of these")
    ledger = parts.add_parser("ledger", help="the claims about industry, and how sure they are")
    border = parts.add_parser("borderline", help="who was kept or left out on the border, and why")
    envelopes = parts.add_parser(
        "envelopes", help="published sizes of teams, and where traces stand among them"
    )
    envelopes.add_argument(
        "paths", nargs="*", metavar="TRACE", help="files that hold traces, or a training run"
    )
    return {
        mapped: _map, timed: _timeline, classes: _evidence, ledger: _ledger, border: _borderline,
        envelopes: _envelopes,
    }  # fmt: skip


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Several values of one field (--reward hybrid --reward shared) are alternatives, several fields are "
        "conditions. NA is for none."
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--excluded", action="store_true", help="those that were screened and left out")
    which.add_argument("--beyond", action="store_true", help="those that Baton adds beside the pool")
    for field in dict.fromkeys((*PAPER_FIELDS, *EXCLUDED_FIELDS)):
        words = VOCABULARIES.get(field)
        if words is not None:
            said = f"one of {', '.join(words)}"
        elif field == "year":
            said = "a year, or a range as 2024-2026"
        elif field in YES_OR_NO:
            said = "yes or no"
        else:
            said = "a text that occurs in it"
        only = "" if field in PAPER_FIELDS else " (with --excluded)"
        parser.add_argument(
            f"--{field.replace('_', '-')}",
            dest=field,
            action="append",
            metavar=field.upper(),
            help=said + only,
        )


def run(args: argparse.Namespace) -> int:
    code: int = args.show(load(), args)
    return code


def _stats(corpus: Corpus, args: argparse.Namespace) -> int:
    found = stats(corpus, ours=args.ours)
    return print_json(found) if args.json else _lines(stats_lines(found))


def _list(corpus: Corpus, args: argparse.Namespace) -> int:
    known = EXCLUDED_FIELDS if args.excluded else PAPER_FIELDS
    wanted = {
        field: values
        for field in dict.fromkeys((*PAPER_FIELDS, *EXCLUDED_FIELDS))
        if (values := getattr(args, field)) is not None
    }
    for field in wanted:
        if field not in known:
            other = "retained" if args.excluded else "excluded"
            hint = "Leave out --excluded." if args.excluded else "Type: --excluded"
            raise UsageError(f"--{field.replace('_', '-')} is a field of {other} records. {hint}")
    rows: list[Paper] | list[Excluded]
    if args.excluded:
        rows = select(corpus.excluded, wanted)
    else:
        rows = select(corpus.beyond if args.beyond else corpus.papers, wanted)
    return print_json(rows) if args.json else _lines(row_lines(rows))


def _show(corpus: Corpus, args: argparse.Namespace) -> int:
    record = find(corpus, " ".join(args.key))
    if args.json:
        return print_json(structs.asdict(record))
    return _lines(record_lines(record, installed_recipes(), in_pool=record not in corpus.beyond))


def _claims(corpus: Corpus, args: argparse.Namespace) -> int:
    known = {claim.name: claim for claim in CLAIMS}
    for name in args.names:
        if name not in known:
            raise UsageError(f"there is no claim {name!r}. {nearest(name, known)}")
    found = {
        name: each for name, each in check_claims(corpus).items() if not args.names or name in args.names
    }
    if args.json:
        return print_json(
            {
                name: {"says": known[name].says, "boundary": known[name].boundary, **structs.asdict(each)}
                for name, each in found.items()
            }
        )
    records: dict[str, Paper | Excluded] = {paper.key: paper for paper in corpus.papers}
    records |= {record.key: record for record in corpus.excluded}
    return _lines(claim_lines([(known[name], each) for name, each in found.items()], records))


def _cards(corpus: Corpus, args: argparse.Namespace) -> int:
    if args.keys:
        papers = [_paper(corpus, key) for key in args.keys]
        for paper in papers:
            if paper.card is None:
                with_card = ", ".join(p.key for p in corpus.all_papers if p.card is not None)
                raise UsageError(f"{paper.key} has no card; it has no recipe. These have: {with_card}.")
    elif args.all:
        papers = [paper for paper in corpus.all_papers if paper.card is not None]
    else:
        papers = sorted((p for p in corpus.papers if p.entry_card is not None), key=_number)
    if args.json:
        return print_json({p.key: {"entry_card": p.entry_card, "card": p.card} for p in papers})
    return _lines(card_lines(papers, installed_recipes()))


def _number(paper: Paper) -> int:
    return paper.entry_card.number if paper.entry_card is not None else 0


def _map(corpus: Corpus, args: argparse.Namespace) -> int:
    if args.json:
        return print_json({p.key: p.covers for p in corpus.papers if p.covers is not None})
    return _lines(map_lines(corpus))


def _timeline(corpus: Corpus, args: argparse.Namespace) -> int:
    found = timeline(corpus.papers)
    return print_json(found) if args.json else _lines(timeline_lines(found))


def _evidence(corpus: Corpus, args: argparse.Namespace) -> int:
    known = VOCABULARIES["source_class"]
    for name in args.classes:
        if name not in known:
            raise UsageError(f"there is no class of sources {name!r}. {nearest(name, known)}")
    rows = [each for each in EVIDENCE if not args.classes or each.source_class in args.classes]
    if args.json:
        return print_json(
            {
                row.source_class: {
                    **structs.asdict(row),
                    "entries": [p.key for p in corpus.papers if p.source_class == row.source_class],
                }
                for row in rows
            }
        )
    return _lines(evidence_lines(corpus, args.classes))


def _ledger(corpus: Corpus, args: argparse.Namespace) -> int:
    return print_json(list(INDUSTRY)) if args.json else _lines(ledger_lines(corpus))


def _borderline(corpus: Corpus, args: argparse.Namespace) -> int:
    if args.json:
        kept = {paper.key: paper.borderline for paper in corpus.papers if paper.borderline}
        out = {record.key: record.borderline for record in corpus.excluded if record.borderline}
        return print_json({"kept": kept, "left_out": out})
    return _lines(borderline_lines(corpus))


def _envelopes(corpus: Corpus, args: argparse.Namespace) -> int:
    del corpus
    traces = [_placed(trace) for trace in traces_at(*args.paths)] if args.paths else []
    if args.json:
        placed = [{"trace_id": each.trace_id, "place": each.where} for each in traces]
        return print_json({"envelopes": list(ENVELOPES), "traces": placed})
    return _lines(envelope_lines(traces))


def _placed(trace: Trace) -> PlacedTrace:
    """Its sub-agents, and its steps: what its agents chose to do. Results, despawns and forced ends are no steps."""
    steps = sum(map(chosen, trace.events))
    try:
        lineage = Lineage.of(trace)
    except TraceError:
        return PlacedTrace(trace_id=trace.trace_id, sub_agents=None, steps=steps)
    return PlacedTrace(trace_id=trace.trace_id, sub_agents=len(lineage) - len(lineage.roots), steps=steps)


def _coverage(corpus: Corpus, args: argparse.Namespace) -> int:
    installed = installed_recipes()
    rows = coverage(corpus, installed)
    named = {row.recipe for row in rows}
    if args.json:
        return print_json({"methods": rows, "recipes_without_a_paper": sorted(installed - named)})
    return _lines(coverage_lines(rows, sorted(installed - named)))


def _bib(corpus: Corpus, args: argparse.Namespace) -> int:
    papers = [_paper(corpus, key) for key in args.keys] if args.keys else list(corpus.papers)
    text = bibtex(papers)
    if args.out is None:
        take_every_character(data=True)
        sys.stdout.write(text)
        return 0
    if Path(args.out).exists():
        raise UsageError(f"{args.out} is there already. Give another --out.")
    with atomic_file(args.out) as file:
        file.write(text.encode())
    say(f"{len(papers)} entries in {args.out}")
    return 0


def _paper(corpus: Corpus, key: str) -> Paper:
    record = find(corpus, key)
    if isinstance(record, Excluded):
        raise UsageError(
            f"{key!r} was left out of the pool ({record.key}). Type: baton corpus show {record.key}"
        )
    return record


def _lines(lines: list[list[tuple[str, str]]]) -> int:
    emit(lines)
    return 0
