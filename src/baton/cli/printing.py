"""What several commands print: a document as JSON, a table of text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from baton.view.terminal.screen import take_every_character
from baton.view.terminal.trace_tree import Line


def print_json(document: object) -> int:
    """Print a document as indented JSON; returns the exit code."""
    take_every_character(data=True)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    return 0


def aligned(rows: Sequence[Sequence[str]], head: str = "dim", *, right: int | None = None) -> list[Line]:
    """Rows in columns of one width, the first one in the style of a head; column `right` is set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[Line] = []
    for row in rows:
        cells = (
            f"{cell:{'>' if k == right else '<'}{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append([("  ".join(cells).rstrip(), "" if lines else head)])
    return lines
