"""A document as Markdown, or as one page of HTML: no script, no link, nothing loaded from anywhere.

Cells hold names from traces, which models and strangers wrote. Invariant: in the page every one of them is text
(escaped, and a content policy forbids the rest); in Markdown none can end its cell or begin markup.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from baton.measure.document import NOT_MEASURED, Document

__all__ = ["as_html", "as_markdown"]

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
