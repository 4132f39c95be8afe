"""`baton show`: a trace as a readable tree."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable

from baton.cli import add_trace
from baton.cli.price_file import add_prices, prices_given
from baton.errors import UsageError
from baton.trace.formats import read_all
from baton.trace.formats.recognition import kept_in, opened_name
from baton.trace.trace import Trace, standing
from baton.view.terminal.fitting import Line
from baton.view.terminal.screen import columns, emit
from baton.view.terminal.trace_summary import above, below
from baton.view.terminal.trace_tree import Options, page
from baton.view.text import count, nearest_name, printable

_LISTED = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace(parser, "a file that holds traces; - is standard input")
    parser.add_argument("--agent", metavar="NAME", help="only this agent and those below it")
    parser.add_argument(
        "--events", action="store_true", help="every event; without it, long traces are folded"
    )
    parser.add_argument(
        "--depth", type=_at_least(0), metavar="N", help="at most N levels of agents below the roots"
    )
    parser.add_argument("--width", type=_at_least(40), metavar="N", help="columns; text is cut to fit")
    parser.add_argument("--text", action="store_true", help="the whole text of each event under it")
    add_prices(parser)
    parser.add_argument(
        "--prompts", action="store_true", help="what each model was asked and answered, word for word"
    )


def run(args: argparse.Namespace) -> int:
    trace = _find(args.path, args.trace)
    if trace is None:
        return 0
    options = Options(
        agent=args.agent,
        depth=args.depth,
        width=args.width or columns(),
        fold=not args.events,
        text=args.text,
        prompts=args.prompts,
    )
    tree = page(trace, options)
    said = above(trace, prices_given(args), working=_is_at_work(args.path, trace))
    lines: list[Line] = [*said, *tree.lines, *below(trace, fold=options.fold)]
    if tree.num_left_out:
        left = f"{tree.num_left_out:,} of {count(tree.num_events, 'event')} left out."
        flags = (
            "--agent NAME for one agent" if args.events else "--events for all, --agent NAME for one agent"
        )
        lines += [[], [(f"{left} Add {flags}, --depth N for deeper ones.", "dim")]]
    emit(lines)
    return 0


def _is_at_work(path: str, trace: Trace) -> bool:
    """Whether its run goes on as one looks."""
    if trace.finished or path == "-":
        return False
    from baton.compose.steering import is_at_work

    return is_at_work(kept_in(path), trace.trace_id)


def _find(path: str, trace_id: str | None) -> Trace | None:
    """The trace to show, or None after listing those there are."""
    first: Trace | None = None
    listed: list[str] = []
    ids: list[str] = []
    for trace in read_all(opened_name(path)):
        if trace.trace_id == trace_id:
            return trace
        first = first or trace
        ids.append(trace.trace_id)
        if len(listed) < _LISTED:
            about = (
                f"task {trace.header.task_id}  {trace.header.topology}  {count(len(trace.events), 'event')}"
            )
            marks = f"{'' if trace.finished else '  unfinished'}{'  ' if standing(trace) else ''}{standing(trace)}"
            listed.append(f"  {trace.trace_id}  {about}{marks}")
    if first is None:
        raise UsageError(f"{opened_name(path)} holds no trace.")
    if trace_id is not None:
        raise UsageError(f"{path} has no trace {trace_id!r}. {nearest_name(trace_id, ids)}")
    if len(ids) == 1:
        return first
    more = [f"  … and {len(ids) - len(listed):,} more"] if len(ids) > len(listed) else []
    hint = f"Type: baton show {shlex.quote(path)} --trace {shlex.quote(ids[0])}"
    rows = [f"{path} holds {len(ids):,} traces:", *listed, *more, hint]
    emit([(printable(row), "")] for row in rows)
    return None


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return value

    return whole_number
