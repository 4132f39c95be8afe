"""A terminal of any width and encoding in this process, and what stands on it."""

from __future__ import annotations

import io
import re

import pytest

from baton.view.terminal.fitting import cells

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="strict", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def raw_text(self) -> str:
        self.flush()
        found = self.buffer.getvalue()  # type: ignore[attr-defined]  # a BytesIO
        return str(found.decode(self.encoding))

    @property
    def lines(self) -> list[str]:
        """What a person sees: of a line that was written over, the last."""
        return [line.rpartition("\r")[2] for line in _ESCAPES.sub("", self.raw_text).split("\n")]

    @property
    def width(self) -> int:
        return max(map(cells, self.lines))


def sit_at(
    monkeypatch: pytest.MonkeyPatch, columns: int = 80, encoding: str = "utf-8", **environ: str
) -> Terminal:
    """From now on standard output is a terminal; a person sits at it."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        {"LANG": "en_GB.UTF-8", "TERM": "xterm"} | environ | {"COLUMNS": str(columns)}
    ).items():
        monkeypatch.setenv(name, value)
    screen = Terminal(encoding)
    monkeypatch.setattr("sys.stdout", screen)
    return screen
