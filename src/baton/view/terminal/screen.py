"""Lines to the screen: coloured and fitted when a person looks, plain text as wide as it comes when a pipe does."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TextIO

from baton.view.terminal.fitting import Line, wrapped
from baton.view.terminal.live import hush
from baton.view.terminal.plain_characters import plain, takes_only_ascii

_PIPE_COLUMNS = 110  # the same wherever it runs, so that saved output can be compared
_LEAST_COLUMNS = 40
_PLAIN_ROOM = 3  # an ellipsis takes three characters of ASCII, and an arrow two


def columns() -> int:
    """How wide a line may be."""
    found = room()
    return _PIPE_COLUMNS if found is None else found


def room() -> int | None:
    """How wide a table may be; None: as wide as it comes, for no terminal shows it."""
    wide = terminal_columns(sys.stdout)
    return wide - _PLAIN_ROOM if wide is not None and takes_only_ascii(sys.stdout) else wide


def terminal_columns(stream: TextIO) -> int | None:
    """How wide the terminal is that a stream goes to; None: to a file or a pipe."""
    return max(_LEAST_COLUMNS, shutil.get_terminal_size().columns) if stream.isatty() else None


def emit(lines: Iterable[Line]) -> None:
    """Print lines whose text is safe to print."""
    hush()
    if not sys.stdout.isatty():
        take_every_character()
        sys.stdout.write("".join("".join(text for text, _ in line) + "\n" for line in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    for some in _batched(_fitted(lines)):
        console.print(Text("\n").join(Text.assemble(*line) for line in some), soft_wrap=True)


def _fitted(lines: Iterable[Line]) -> Iterator[Line]:
    ascii_only, wide = takes_only_ascii(sys.stdout), terminal_columns(sys.stdout) or _PIPE_COLUMNS
    for line in lines:
        yield from wrapped([(plain(text), style) for text, style in line] if ascii_only else line, wide)


def take_every_character(*, data: bool = False) -> None:
    """From now on no character fails to print: JSON and CSV are UTF-8, elsewhere it is shown escaped."""
    hush()
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        if data:
            reconfigure(encoding="utf-8")
        elif sys.stdout.errors == "strict":
            reconfigure(errors="backslashreplace")


def _batched(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """A few hundred lines at a time: printing each by itself takes ten times as long."""
    rest = iter(lines)
    while some := list(islice(rest, 300)):
        yield some
