"""`baton stats`: how large traces are."""

from __future__ import annotations

import argparse

from baton.cli.printing import print_json
from baton.compose.runs import traces_at
from baton.measure.metrics.scale import scale
from baton.view.terminal.figures import spread, table
from baton.view.terminal.screen import emit

_SIDE_BY_SIDE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="TRACE", help="files that hold traces")
    parser.add_argument(
        "--json", action="store_true", help="every figure of every trace, and their spread, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    scales = list(map(scale, traces_at(*args.paths)))
    if args.json:
        return print_json({"traces": scales, "spread": spread(scales)})
    emit(table(scales, side_by_side=len(scales) <= _SIDE_BY_SIDE))
    return 0
