"""`baton blame RUN`: from a bad state back to the decision responsible, ranked by what would have come of another."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from baton.cli import add_trace, add_trust
from baton.cli.printing import print_json, say
from baton.compose.again import is_trained, own_settings
from baton.compose.credit_traces import TraceRunner
from baton.compose.runs import one_trace
from baton.errors import UsageError
from baton.measure.blame.by_forks import BlameReading, Suspect, blame_by_forks
from baton.measure.blame.by_trace import Suspicion, suspicions
from baton.measure.blame.state import BadState, bad_state
from baton.trace.trace import Trace
from baton.view.text import count, printable, shortened

_SHOWN = 5
_WIDTH = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton blame runs/sum\n"
        "  baton blame runs/sum --state worker1#3 --spend 10\n"
        "  baton blame runs/imported.jsonl --no-forks --json"
    )
    add_trace(parser, "a file or folder that holds the run")
    parser.add_argument(
        "--state",
        metavar="S",
        help="what went wrong: failure, violation, or an event that should not have been",
    )
    parser.add_argument(
        "--spend",
        type=float,
        default=4.0,
        metavar="X",
        help="tokens that forks may take, in runs of its own (4)",
    )
    parser.add_argument(
        "--draws", type=int, default=4, metavar="N", help="how often each turn is asked again (4)"
    )
    parser.add_argument("--no-forks", action="store_true", help="read the trace alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    if not args.spend > 0 or args.draws < 1:
        raise UsageError(f"--spend {args.spend:g} --draws {args.draws}: expected more than 0, and 1 or more.")
    trace = one_trace(args.path, args.trace)
    state = bad_state(trace, args.state)
    why_not = _why_no_forks(trace, args)
    found: BlameReading | None = None
    if why_not is None:
        runner = TraceRunner(trace, trust=args.trust, path=args.path)
        found = asyncio.run(blame_by_forks(trace, state, runner, spend=args.spend, draws=args.draws))
        if not found.suspects and not found.cleared:
            why_not = found.refused or "no turn of a policy led there"
            found = None
    read = () if found is not None else suspicions(trace, state)
    if args.json:
        return print_json(_document(trace, state, found, read, why_not))
    say(f"state    {printable(state.told)}" + (f", at {state.at}" if state.at else ""))
    if found is not None:
        _say_forks(trace, found)
    else:
        _say_read(trace, read, why_not or "")
    return 0


def _why_no_forks(trace: Trace, args: argparse.Namespace) -> str | None:
    if args.no_forks:
        return "--no-forks"
    if own_settings(trace) is None and not is_trained(trace):
        return "it was not made by `baton run` or `baton train`, so it cannot be run again"
    return None


def _say_forks(trace: Trace, found: BlameReading) -> None:
    for place, each in enumerate(found.suspects[:_SHOWN]):
        say(f"{'blame' if not place else 'then':<8} {_told(trace, each)}")
    if len(found.suspects) > _SHOWN:
        say(f"         and {count(len(found.suspects) - _SHOWN, 'turn')} more (--json has all)")
    if not found.suspects:
        say("blame    nobody alone: no single turn, asked again, makes it less bad")
    if found.cleared:
        say(f"cleared  {count(len(found.cleared), 'turn')}: asked again, it ends as badly")
    if found.untried:
        why = f" ({printable(found.refused)})" if found.refused else "; for more, type a larger --spend"
        say(f"untried  {count(len(found.untried), 'turn')}{why}")
    times = found.cost.tokens / max(1, found.own_tokens)
    say(
        f"cost     {found.cost.tokens:,} tokens in {count(found.cost.calls, 'call')}, {times:.1f} times the run's own"
    )


def _told(trace: Trace, each: Suspect) -> str:
    said = _said(trace, each.event)
    way = f"{each.num_mended} of {each.num_draws}"
    effect = each.effect.value or 0.0
    return (
        f"{printable(each.agent)} at {each.event}{said}: asked again it says something else in {each.num_other} of "
        f"{each.num_draws} draws, and in {way} all is well (effect {effect:+.2f})"
    )


def _say_read(trace: Trace, read: Sequence[Suspicion], why: str) -> None:
    say(
        f"how      read from the trace, without a fork: {printable(why)}. This says where to look, and proves nothing"
    )
    for place, each in enumerate(read[:_SHOWN]):
        head = "suspect" if not place else "then"
        say(
            f"{head:<8} {printable(each.agent)}, who did {each.share:.0%} of the work that led there, from "
            f"{each.event} on{_said(trace, each.event)}"
        )
    if not read:
        say("suspect  nobody: the trace has no act that led there")


def _said(trace: Trace, name: str) -> str:
    event = trace.event(name)
    text = trace.text(event.content_ref)
    what = event.decision if event.decision != "none" else event.type
    return f" ({what})" if not text else f' ({what} "{shortened(text, _WIDTH)}")'


def _document(
    trace: Trace, state: BadState, found: BlameReading | None, read: Sequence[Suspicion], why: str | None
) -> dict[str, Any]:
    told: dict[str, Any] = {"trace": trace.trace_id, "state": state.name, "told": state.told, "at": state.at}
    if found is None:
        return told | {"how": "trace", "why_no_forks": why, "suspects": msgspec.to_builtins(list(read))}
    forks: dict[str, Any] = msgspec.to_builtins(found)
    return told | {"how": "forks"} | forks
