"""`report.html`: a training run as one page that opens anywhere, says what it measured and what it did not.

No script, no network, nothing outside the file: the content policy allows the one style sheet by its hash. All text
from a run (names, messages, traces, the recipe) is untrusted and goes through `escape` and `printable`.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from pathlib import Path

from baton.trace.formats.durable import atomic_file
from baton.view.report.examples import examples
from baton.view.report.run_figures import TrainingRun, read_run
from baton.view.report.sections import SECTIONS, heading


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run's folder, whole or not at all."""
    place = folder / "report.html"
    page = report_page(read_run(folder))
    with atomic_file(place) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return place


def report_page(run: TrainingRun) -> str:
    """The whole report as one HTML page."""
    style = "".join(
        files("baton.view.report").joinpath(name).read_text("utf-8") for name in ("figures.css", "frame.css")
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sections = [*SECTIONS, ("examples", "Example traces", examples)]
    sections.sort(key=lambda each: each[0] == "recipe")  # the longest and least read stands last
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "\n".join(
        f'<section id="{key}"><h2>{escape(title)}</h2>\n{write(run)}</section>'
        for key, title, write in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(run.said('recipe'))} – Baton training report</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<header>{heading(run)}<nav>{links}</nav></header>\n<main>\n{body}\n</main>\n"
        f"<footer><p>Written by Baton {escape(run.said('baton'))}. One file: no script, no network.</p></footer>\n"
        "</body>\n</html>\n"
    )
