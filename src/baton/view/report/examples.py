"""Example traces of the report: what the team did before and after, on the same instances, side by side."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from baton.errors import BatonError
from baton.trace.formats.sqlite.store_read import list_traces, read_store
from baton.trace.trace import Trace
from baton.view.report.run_figures import TrainingRun
from baton.view.report.svg import shown
from baton.view.terminal.trace_tree import Options, page
from baton.view.text import printable

_SHOWN = 3
_COLUMNS = 100
_NAME = re.compile(r"(before|after)-(\d+)")


def examples(run: TrainingRun) -> str:
    """Pairs of traces, the first one open."""
    store = run.path / "traces" / "run.db"
    try:
        pairs = _pairs(store)
        wanted = [trace_id for pair in pairs for trace_id in pair if trace_id is not None]
        found = {trace.trace_id: trace for trace in read_store(store, wanted)} if pairs else {}
    except BatonError as error:
        return f'<p class="none">The traces cannot be read: {escape(printable(str(error)))}</p>'
    if not pairs:
        return '<p class="none">No example traces were kept.</p>'
    drawn = [
        "<p>The same instance and the same draws, played by the weights the run started from and by those it ended "
        "with.</p>"
    ]
    for n, (before, after) in enumerate(pairs):
        sides = _side("before", found.get(before or "")) + _side("after", found.get(after or ""))
        drawn.append(
            f"<details{' open' if n == 0 else ''}><summary>Instance {n + 1}</summary>"
            f'<div class="pair">{sides}</div></details>'
        )
    return "".join(drawn)


def _pairs(store: Path) -> list[tuple[str | None, str | None]]:
    """Ids before and after, by instance."""
    if not store.is_file():
        return []
    found: dict[str, dict[int, str]] = {"before": {}, "after": {}}
    for each in list_traces(store):
        if (name := _NAME.fullmatch(each.trace_id)) is not None:
            found[name[1]][int(name[2])] = each.trace_id
    numbers = sorted({*found["before"], *found["after"]})[:_SHOWN]
    return [(found["before"].get(n), found["after"].get(n)) for n in numbers]


def _side(label: str, trace: Trace | None) -> str:
    if trace is None:
        return f'<div><h3>{label}</h3><p class="none">not measured</p></div>'
    tree = page(trace, Options(width=_COLUMNS))
    lines = "\n".join("".join(map(_coloured, line)) for line in tree.lines)
    return (
        f'<div><h3>{label} <span class="muted">{escape(printable(trace.trace_id))}: {escape(_worth(trace))}</span></h3>'
        f'<pre tabindex="0" role="group" aria-label="{label}">{lines}</pre></div>'
    )


def _coloured(part: tuple[str, str]) -> str:
    """The tree's styles are words of its own; the style sheet has them as classes."""
    text, style = part
    return f'<span class="{escape(style)}">{escape(text)}</span>' if style else escape(text)


def _worth(trace: Trace) -> str:
    team = [reward.value for reward in trace.rewards if reward.unit == "team"]
    tokens = trace.costs.get("tokens")
    said = f"return {shown(team[0])}" if team else "return not measured"
    return said if tokens is None else f"{said}, {tokens:,.0f} tokens"
