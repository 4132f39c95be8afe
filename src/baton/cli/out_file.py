"""Where `--out` of a command goes that adds records to traces: the rule is one for all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from baton.errors import UsageError
from baton.trace.formats import find_format, format_of_name
from baton.trace.formats.durable import refuse_written


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    """`--out PATH`, and `--force` to replace what is there."""
    parser.add_argument("--out", metavar="PATH", help=f"write the traces with their {what} here")
    parser.add_argument("--force", action="store_true", help="replace what is at --out")


def check_free(path: str, force: bool) -> None:
    """Refuse an --out that cannot be written, now rather than after the work."""
    kind = format_of_name(path)
    if not Path(path).exists():
        return
    if not find_format(kind).is_text:
        raise UsageError(f"{path} is there already, and {kind} is only ever added to. Give another --out.")
    if not force:
        raise UsageError(f"{path} is there already. Type --force to replace it, or give another --out.")
    refuse_written(Path(path), "--out")
