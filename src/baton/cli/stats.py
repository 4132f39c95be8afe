"""`baton stats`: how large traces are."""

from __future__ import annotations

import argparse
import sys

import msgspec

from baton.errors import UsageError
from baton.measure.metrics.scale import scale
from baton.trace.formats import read_all
from baton.view.terminal.figures import spread, table
from baton.view.terminal.screen import emit, take_every_character

_SIDE_BY_SIDE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="TRACE", help="files that hold traces")
    parser.add_argument(
        "--json", action="store_true", help="every figure of every trace, and their spread, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    scales = [scale(trace) for path in args.paths for trace in read_all(path)]
    if not scales:
        raise UsageError(f"{', '.join(args.paths)}: no trace in there.")
    if args.json:
        found = msgspec.json.encode({"traces": scales, "spread": spread(scales)})
        take_every_character(data=True)
        sys.stdout.write(msgspec.json.format(found, indent=2).decode() + "\n")
    else:
        emit(table(scales, side_by_side=len(scales) <= _SIDE_BY_SIDE))
    return 0
