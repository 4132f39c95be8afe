"""What several commands print: a line, a remark on stderr, a document as JSON, a table of text.

Everything a command says goes through here or through `emit`, so that it fits the terminal it is on and meets no
line of progress there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from baton.view.terminal.fitting import Line, table_lines, wrapped_text
from baton.view.terminal.live import hush
from baton.view.terminal.screen import emit, room, take_every_character, terminal_columns


def say(text: str = "", style: str = "") -> None:
    """Print a text of one or more lines on standard output."""
    emit([[(line, style)] for line in text.split("\n")])
    sys.stdout.flush()


def remark(text: str) -> None:
    """Print a text on standard error, which may be the same terminal."""
    hush()
    wide = terminal_columns(sys.stderr)
    print(text if wide is None else wrapped_text(text, wide), file=sys.stderr, flush=True)


def print_json(document: object) -> int:
    """Print a document as indented JSON; returns the exit code."""
    take_every_character(data=True)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    return 0


def aligned(
    rows: Sequence[Sequence[str]], head: str = "dim", *, right: Sequence[int] = (), indent: int = 0
) -> list[Line]:
    """Rows in columns that fit the screen, the first one in the style of a head; columns `right` to the right."""
    wide = room()
    lines = table_lines(rows, None if wide is None else wide - indent, head=head, right=right)
    return [[(" " * indent, ""), *line] for line in lines] if indent else lines
