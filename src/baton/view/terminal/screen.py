"""Lines to the screen: coloured when a person looks, plain text when a pipe does."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import islice

from baton.view.terminal.trace_tree import Line

_PIPE_COLUMNS = 110  # the same wherever it runs, so that saved output can be compared


def columns() -> int:
    """How wide a line may be."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS


def emit(lines: Iterable[Line]) -> None:
    """Print lines whose text is safe to print."""
    if not sys.stdout.isatty():
        take_every_character()
        sys.stdout.write("".join("".join(text for text, _ in line) + "\n" for line in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    for some in _batched(lines):
        console.print(Text("\n").join(Text.assemble(*line) for line in some), soft_wrap=True)


def take_every_character(*, data: bool = False) -> None:
    """From now on no character fails to print: JSON and CSV are UTF-8, elsewhere it is shown escaped."""
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        if data:
            reconfigure(encoding="utf-8")
        else:
            reconfigure(errors="backslashreplace")


def _batched(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """A few hundred lines at a time: printing each by itself takes ten times as long."""
    rest = iter(lines)
    while some := list(islice(rest, 300)):
        yield some
