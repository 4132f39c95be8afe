"""`baton stats`: how large traces are."""

from __future__ import annotations

import argparse

from baton.cli.price_file import add_prices, prices_given
from baton.cli.printing import aligned, print_json, remark, say
from baton.compose.runs import traces_at
from baton.measure.metrics.scale import scale
from baton.measure.prices import price
from baton.trace.trace import is_fork
from baton.view.terminal.figures import cost_rows, spread, table
from baton.view.terminal.screen import emit

_SIDE_BY_SIDE = 4
_REASONS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="TRACE", help="files that hold traces; - is standard input"
    )
    add_prices(parser)
    parser.add_argument(
        "--json", action="store_true", help="every figure of every trace, and their spread, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    traces = traces_at(*args.paths)
    forks = sum(map(is_fork, traces))
    if 0 < forks < len(traces):
        remark(f"baton stats: {forks:,} of {len(traces):,} are forks, and counted with the others.")
    scales = list(map(scale, traces))
    costs = [] if args.prices is None else [price(trace, prices_given(args)) for trace in traces]
    if args.json:
        document = {"traces": scales, "spread": spread(scales)}
        return print_json(document | {"costs": costs} if costs else document)
    emit(table(scales, side_by_side=len(scales) <= _SIDE_BY_SIDE))
    if costs:
        say()
        emit(aligned(cost_rows(costs), right=range(1, 6)))
        for why in list(dict.fromkeys(one.why_not for one in costs if one.why_not is not None))[:_REASONS]:
            remark(f"baton stats: unknown, as {why}.")
    return 0
