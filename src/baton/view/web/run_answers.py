"""A training run as the report draws it, for the page to show and to show again while the run goes on.

The report's sections are HTML. The page lets nothing in as markup, so it gets them as elements it can make one by
one: a text, or [tag, attributes, children]. What it does not know, it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from baton.errors import FormatError, UsageError
from baton.view.report.run_figures import read_run
from baton.view.report.sections import SECTIONS, heading
from baton.view.report.side_by_side import MOST_DRAWN, compared, overlaid

Element = str | list[Any]

_FILES = ("run.json", "metrics.jsonl", "evals.jsonl", "recipe.toml")
_VOID = ("br", "hr", "img")
_SVG_NAMES = {"viewbox": "viewBox"}


def run_answer(folder: Path, stamp: str) -> dict[str, Any]:
    """The heading and the sections; no more than that nothing changed, where `stamp` is of what the page has."""
    now = run_stamp(folder)
    if now == stamp:
        return {"stamp": now, "unchanged": True}
    run = read_run(folder)
    return {
        "stamp": now,
        "status": run.said("status"),
        "done": len(run.steps),
        "steps": run.num_steps,
        "heading": elements(heading(run)),
        "sections": [
            {"key": key, "title": title, "body": elements(write(run))} for key, title, write in SECTIONS
        ],
    }


def trainings_answer(places: Sequence[tuple[str, Path]], named: str) -> dict[str, Any]:
    """A line about each run, and the curves of those that are named (as a JSON list) in one plot."""
    try:
        wanted = msgspec.json.decode(named, type=list[str]) if named else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError(f"runs is {named[:80]!r}; expected a list of names.") from None
    if len(wanted) > MOST_DRAWN:
        raise UsageError(
            f"{len(wanted)} runs are to be drawn in one plot; at most {MOST_DRAWN} can be told apart."
        )
    runs = []
    for key, path in places:
        if key in wanted:
            with suppress(FormatError):
                runs.append((key, read_run(path)))
    return {"runs": compared(places), "plots": elements(overlaid(runs)) if runs else []}


def elements(html: str) -> list[Element]:
    """Baton's own HTML as a tree of elements and texts."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.top


class _Reader(HTMLParser):
    """Collects elements; each goes into the one that is open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.top: list[Element] = []
        self._open: list[list[Element]] = [self.top]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        children: list[Element] = []
        named = {_SVG_NAMES.get(name, name): value or "" for name, value in attrs}
        self._open[-1].append([tag, named, children])
        if tag not in _VOID:
            self._open.append(children)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and len(self._open) > 1:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].append(data)


def run_stamp(folder: Path) -> str:
    """A short hash that changes whenever one of the run's files does: of their sizes and times."""
    told = []
    for name in _FILES:
        try:
            found = (folder / name).stat()
            told.append(f"{found.st_size} {found.st_mtime_ns}")
        except OSError:
            told.append("")
    return blake2b("\n".join(told).encode(), digest_size=8).hexdigest()
