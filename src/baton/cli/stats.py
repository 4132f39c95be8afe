"""`baton stats`: how large traces are."""

from __future__ import annotations

import argparse

from baton.cli.printing import print_json, remark
from baton.compose.runs import traces_at
from baton.measure.metrics.scale import scale
from baton.trace.trace import is_fork
from baton.view.terminal.figures import spread, table
from baton.view.terminal.screen import emit

_SIDE_BY_SIDE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="TRACE", help="files that hold traces; - is standard input"
    )
    parser.add_argument(
        "--json", action="store_true", help="every figure of every trace, and their spread, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    traces = traces_at(*args.paths)
    forks = sum(map(is_fork, traces))
    if 0 < forks < len(traces):
        remark(f"baton stats: {forks:,} of {len(traces):,} are forks, and counted with the others.")
    scales = list(map(scale, traces))
    if args.json:
        return print_json({"traces": scales, "spread": spread(scales)})
    emit(table(scales, side_by_side=len(scales) <= _SIDE_BY_SIDE))
    return 0
