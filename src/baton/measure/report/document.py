"""A report as titled tables of plain cells, for people: the same words on the screen, in Markdown and in a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from msgspec import Struct

from baton.measure.figure import Figure
from baton.measure.metrics.mast import MODES
from baton.measure.metrics.token_matched import BestOf
from baton.measure.report.checklist import Checklist
from baton.measure.report.report import FAMILIES, MeasureReport, OwnFigure, Rows, TraceGroup
from baton.measure.safety.summary import SafetyReport

NOT_MEASURED = "not measured"
_SOME = 12


class ReportTable(Struct, frozen=True, kw_only=True):
    """Rows under a title; the first cell of a row is its name."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Document(Struct, frozen=True, kw_only=True):
    """What a person reads."""

    title: str
    tables: tuple[ReportTable, ...]
    notes: tuple[str, ...]


def shown(figure: Figure, *, why: bool = False) -> str:
    """0.75 [0.41, 0.93]; not measured."""
    if figure.value is None:
        return f"{NOT_MEASURED}: {figure.why_not}" if why and figure.why_not else NOT_MEASURED
    value = number(figure.value)
    if figure.low is None and figure.high is None:
        return value
    low, high = ("?" if end is None else number(end) for end in (figure.low, figure.high))
    return f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """No more digits than carry meaning."""
    if not isfinite(value):  # costs near the largest number there is add up to more
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def document(report: MeasureReport) -> Document:
    """The whole report."""
    columns = _columns(report)
    tables = [_checklist(report.checklist)]
    for family, about in FAMILIES.items():
        names = [name for name, row in Rows.items() if row.family == family]
        tables.append(_figures(f"{family} {about}", names, columns, report.best_of))
    if report.by_topology:
        tables.append(_topologies(report.by_topology))
    if report.delegation:
        tables.append(
            _plain(
                "Tokens per delegation, by role",
                "tokens",
                report.delegation,
                estimated=report.all.estimated > 0,
            )
        )
    if report.endings:
        rounds = {f"diversity in round {number}": figure for number, figure in report.diversity.items()}
        ended = {f"ended by {way}": figure for way, figure in report.endings.items()}
        tables.append(_plain("Debates: how positions moved, and how they ended", "value", rounds | ended))
    if report.own:
        tables.append(_own(report.own))
    if report.versus_single:
        tables.append(_plain("Against the single agent", "team", report.versus_single))
    if report.best_of is not None:
        best = report.best_of
        figures = {
            "success": best.success,
            "samples (n)": best.samples,
            "tokens over the team's": best.token_match,
        }
        tables.append(_plain("Best of n single agents, token-matched", "best of n", figures))
    tables.append(_failures(report, columns))
    if report.safety is not None:
        tables += _safety(report.safety)
    title = f"{report.checklist.traces:,} trace{'' if report.checklist.traces == 1 else 's'} measured"
    return Document(title=title, tables=tuple(tables), notes=report.notes)


def _columns(report: MeasureReport) -> dict[str, TraceGroup]:
    """Title -> its figures. One band that holds all is not shown twice."""
    columns = {f"all ({report.all.traces:,})": report.all}
    for band, group in report.bands.items():
        title = f"{band:,} events ({group.traces:,})"
        if group.traces == report.all.traces:
            columns = {title: group}
        else:
            columns[title] = group
    if report.single is not None:
        columns[f"single agent ({report.single.traces:,})"] = report.single
    return columns


def _figures(
    title: str, names: Sequence[str], columns: Mapping[str, TraceGroup], best: BestOf | None
) -> ReportTable:
    head = ["figure", *columns]
    if best is not None and "success" in names:
        head.append("best of n")
    rows = []
    for name in names:
        unit = f" ({Rows[name].unit})" if Rows[name].unit else ""
        row = [_words(name) + unit, *(_of_group(name, group) for group in columns.values())]
        if len(head) > len(columns) + 1:
            row.append(shown(best.success) if name == "success" and best is not None else "")
        first = next(iter(columns.values())).figures[name]
        rows.append((*row, first.why_not or Rows[name].about))
    return ReportTable(title=title, head=(*head, "what it is, or why it is not measured"), rows=tuple(rows))


def _topologies(groups: Mapping[str, TraceGroup]) -> ReportTable:
    """A row for each figure that some topology has; what it is stands in the tables of the families."""
    rows = [
        (_words(name) + (f" ({Rows[name].unit})" if Rows[name].unit else ""),
         *(_of_group(name, group) for group in groups.values()), Rows[name].family)
        for name in Rows if any(group.figures[name].value is not None for group in groups.values())
    ]  # fmt: skip
    columns = (f"{topology} ({group.traces:,})" for topology, group in groups.items())
    return ReportTable(title="By topology", head=("figure", *columns, "family"), rows=tuple(rows))


def _own(own: Mapping[str, OwnFigure]) -> ReportTable:
    rows = []
    for name, one in own.items():
        about = one.figure.why_not or " ".join(filter(None, (one.about, one.source and f"({one.source})")))
        rows.append((_words(name) + (f" ({one.unit})" if one.unit else ""), shown(one.figure), about))
    head = ("figure", "all", "what it is, or why it is not measured")
    return ReportTable(title="Metrics asked for", head=head, rows=tuple(rows))


def _of_group(name: str, group: TraceGroup) -> str:
    """A figure of a group; where it is of tokens, a tilde says that some of them were estimated."""
    return _tilde(shown(group.figures[name]), "token" in name and group.estimated > 0)


def _tilde(cell: str, estimated: bool) -> str:
    return f"~{cell}" if estimated and cell != NOT_MEASURED else cell


def _plain(title: str, column: str, figures: Mapping[str, Figure], *, estimated: bool = False) -> ReportTable:
    """A row for each figure: its name, its value, and why there is none. `estimated`: a tilde stands before each."""
    rows = tuple(
        (_words(name), _tilde(shown(figure), estimated), figure.why_not or "")
        for name, figure in figures.items()
    )
    return ReportTable(title=title, head=("figure", column, "why not measured"), rows=rows)


def _failures(report: MeasureReport, columns: Mapping[str, TraceGroup]) -> ReportTable:
    rows = []
    for mode, (code, _) in MODES.items():
        events = [
            f"{trace}: {', '.join(finding.events[:3])}"
            for trace, findings in report.found.items()
            for finding in findings
            if finding.mode == mode
        ]
        first = next(iter(columns.values())).failures[mode]
        where = "; ".join(events[:3]) + (f"; {len(events) - 3} more traces" if len(events) > 3 else "")
        cells = (shown(group.failures[mode]) for group in columns.values())
        rows.append((f"{code} {_words(mode)}", *cells, first.why_not or where))
    return ReportTable(
        title="MAST failure modes, by rule",
        head=("share of traces", *columns, "where, or why it is not measured"),
        rows=tuple(rows),
    )


def _checklist(found: Checklist) -> ReportTable:
    safe = found.safety
    roles = NOT_MEASURED if found.roles is None else _counts(found.roles)
    channels = ", ".join(f"{name} ({how})" for name, how in found.reward_channels.items()) or "none recorded"
    rows = [
        ("traces", f"{found.traces:,} of {found.tasks:,} task{'' if found.tasks == 1 else 's'}"),
        ("topology", _counts(found.topologies)),
        ("roles", roles),
        ("agents", f"{found.team_size}; {found.spawns:,} spawns, {found.despawns:,} despawns"),
        *((_scale_words(name), _scale_shown(name, found)) for name in found.scale),
        ("reward channels", channels),
        ("finest credit unit", found.finest_credit_unit or "none recorded"),
        (
            "safety",
            f"trust is known of {safe.labelled_results:,} of {safe.tool_results:,} tool results "
            f"({safe.untrusted_results:,} untrusted); {safe.labelled_calls:,} tool calls say whether they are "
            f"consequential; {safe.endorsements:,} endorsements, {safe.safety_events:,} safety events, "
            f"{safe.human_interventions:,} human interventions; {safe.budgeted:,} traces under a budget",
        ),
    ]
    return ReportTable(title="Reporting checklist", head=("item", "value"), rows=tuple(rows))


def _scale_shown(name: str, found: Checklist) -> str:
    """A tilde before tokens says that some of them were estimated."""
    return ("~" if name == "tokens" and found.estimated else "") + shown(found.scale[name], why=True)


def _safety(found: SafetyReport) -> list[ReportTable]:
    figures = _plain("Safety: taint, blast radius, clean replay", "value", found.figures)
    rows = []
    for one in found.traces[:_SOME]:
        touched, radius = one.taint, one.blast
        if touched is None or radius is None:
            rows.append((one.trace_id, *(NOT_MEASURED,) * 4, one.why_not or ""))
            continue
        guard = "guard " + ", ".join(radius.cut[:3]) if radius.cut else ""
        clean = one.clean
        told = one.why_not or "" if clean is None else f"{len(clean.compromised)} compromised"
        rows.append(
            (
                one.trace_id,
                ", ".join(touched.sources[:3]) + (", …" if len(touched.sources) > 3 else "") or "none",
                str(len(touched.tainted)),
                ", ".join(touched.agents[:4]) + (", …" if len(touched.agents) > 4 else "") or "none",
                ", ".join(touched.violations[:3]) or ("none" if touched.num_labelled_calls else NOT_MEASURED),
                "; ".join(part for part in (told, guard) if part),
            )
        )
    head = ("trace", "sources", "tainted events", "tainted agents", "violations", "clean replay")
    title = "Taint by trace" + (f" (the first {_SOME})" if len(found.traces) > _SOME else "")
    return [figures, ReportTable(title=title, head=head, rows=tuple(rows))]


def _counts(words: Mapping[str, int]) -> str:
    return ", ".join(f"{word} {n:,}" for word, n in words.items()) or "none"


def _scale_words(name: str) -> str:
    return {"spawned": "sub-agents a trace"}.get(name, f"{_words(name)} a trace")


def _words(name: str) -> str:
    return name.replace("_", " ")


# A document as Markdown, or as one page of HTML: no script, no link, nothing loaded from anywhere.
#
# Cells hold names from traces, which models and strangers wrote. Invariant: in the page every one of them is text
# (escaped, and a content policy forbids the rest); in Markdown none can end its cell or begin markup.

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.2rem; font-size: 1.1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }
thead th { border-bottom: 2px solid #8888; }
td.none { opacity: .55; font-style: italic; }
"""
_MARKUP = re.compile(r"([\\`*_\[\]|~#@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""What begins markup inside a line, addresses that some renderers turn into links among it."""


def as_markdown(document: Document) -> str:
    """Tables under headings."""
    lines = [f"# {_marked(document.title)}", ""]
    lines += [f"> {_marked(note)}" for note in document.notes]
    for table in document.tables:
        lines += ["", f"## {_marked(table.title)}", ""]
        lines.append(_line(table.head))
        lines.append("|" + "---|" * len(table.head))
        lines += [_line((*row, *[""] * (len(table.head) - len(row)))) for row in table.rows]
    return "\n".join(lines) + "\n"


def as_html(document: Document) -> str:
    """A whole page."""
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(document.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{html.escape(document.title)}</h1>",
        *(f"<p>{html.escape(note)}</p>" for note in document.notes),
    ]
    for table in document.tables:
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table.head)
        parts.append(f'<h2>{html.escape(table.title)}</h2>\n<div class="wide"><table>')
        parts.append(f"<thead><tr>{head}</tr></thead>\n<tbody>")
        parts += [f"<tr>{''.join(_cells(row))}</tr>" for row in table.rows]
        parts.append("</tbody></table></div>")
    return "\n".join([*parts, "</body>\n</html>\n"])


def _cells(row: tuple[str, ...]) -> Iterable[str]:
    for k, cell in enumerate(row):
        text = html.escape(cell)
        if k == 0:
            yield f'<th scope="row">{text}</th>'
        else:
            yield f'<td class="none">{text}</td>' if cell.startswith(NOT_MEASURED) else f"<td>{text}</td>"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_marked, cells)) + " |"


def _marked(text: str) -> str:
    return html.escape(_MARKUP.sub(r"\\\1", " ".join(text.split())), quote=False)
