"""One table for every benchmark: what was measured, against what, where, and how to run it again."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["machine", "print_table", "row"]

COLUMNS = ("what", "value", "against", "value", "ratio", "machine", "command")


def row(
    what: str, value: str, against: str, against_value: str, ratio: float | None, where: str
) -> tuple[str, ...]:
    """One line; a ratio above 1 is in Baton's favour, None is not measured."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    shown = "not measured" if ratio is None else f"{ratio:.2f}x"
    return what, value, against, against_value, shown, where, f"`{command}`"


def print_table(rows: Iterable[tuple[str, ...]]) -> None:
    """Markdown, on standard output, each row as soon as it is there."""
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    for each in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in each) + " |", flush=True)


def machine(extra: str = "") -> str:
    """This machine in a few words."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    words = f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{words}, {extra}" if extra else words
