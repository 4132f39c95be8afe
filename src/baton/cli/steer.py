"""`baton steer RUN`: pause a run that goes on, speak to it, edit what it says, stop a branch, approve, let it go on."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from baton.cli.printing import remark, say
from baton.compose.steering import now, outcome, send, steered_trace
from baton.compose.stores import resume_command, store_to_resume
from baton.errors import UsageError, nearest
from baton.team.people import ROOT, Act, Doing, RunStanding
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.view.text import printable

_SHOWN = 12
_MOST_CHARACTERS = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "acts:\n"
        "  pause               begin nothing new and do nothing that agents decide, until go\n"
        "  go                  go on\n"
        "  say TEXT            speak: to who starts the run, or --to AGENT, or --team\n"
        "  edit EVENT TEXT     what was said and not read yet, or what will be said, says TEXT instead\n"
        "  stop AGENT [WHY]    end an agent's task, and all below it; what it has goes up\n"
        "  approve ID [WHY]    a call that waits for a person is made\n"
        "  refuse ID [WHY]     it is not\n"
        "Without an act: how the run stands.\n\n"
        "example:\n  baton steer runs/sum pause\n  baton steer runs/sum say 'look twice' --to worker1\n"
        "  baton steer runs/sum go"
    )
    parser.add_argument("run", metavar="RUN", help="where `baton run` writes")
    parser.add_argument("act", metavar="ACT", nargs="?", help="what to do, see below")
    parser.add_argument("words", metavar="WORD", nargs="*", help="what the act is about")
    parser.add_argument("--trace", metavar="ID", help="which run, where several go on")
    parser.add_argument("--to", metavar="AGENT", help="to whom to speak")
    parser.add_argument("--team", action="store_true", help="speak to everybody who is at work")
    parser.add_argument(
        "--by", metavar="NAME", default="", help="who does it, for the trace (the name of the account)"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for what came of it (10)",
    )


def run(args: argparse.Namespace) -> int:
    if (Path(args.run) / "run.json").is_file():
        raise UsageError(f"{args.run} is a training run; its rollouts are not steered. Stop it with Ctrl-C.")
    store = store_to_resume(args.run)
    found = steered_trace(store, args.trace)
    working = now(store)
    going = working is not None and found.trace_id in working.runs
    if args.act is None:
        standing = working.runs[found.trace_id] if working is not None and going else None
        _show(found.trace_id, standing, finished=found.finished, place=args.run)
        return 0
    act = _act(args)
    if found.finished:
        raise UsageError(f"{found.trace_id} has ended, so there is nothing to steer.")
    act = send(store, found.trace_id, act)
    if not going:
        say(f"kept     {found.trace_id} is not at work; it is done when it goes on")
        say(f"Type: {resume_command(args.run, trace_id=args.trace)}")
        return 0
    event, trace = asyncio.run(outcome(store, found.trace_id, act, args.wait))
    return _tell(act, event, trace)


def _act(args: argparse.Namespace) -> Act:
    """The act that was typed."""
    do, words = args.act, list(args.words)
    known = get_args(Doing)
    if do not in known:
        raise UsageError(f"there is no act {do!r}. {nearest(do, known)}")
    if do != "say" and (args.to or args.team):
        raise UsageError(
            f"--to and --team are for say. Type: baton steer {args.run} {do} {_FORM[do]}".rstrip()
        )
    if args.to and args.team:
        raise UsageError("--to AGENT and --team: one or the other.")
    least, most = _WORDS[do]
    if not least <= len(words) <= most:
        form = f"baton steer {args.run} {do} {_FORM[do]}".rstrip()
        raise UsageError(f"{do} with {len(words)} words: expected {form}. Put a text in quotes.")
    if do == "say":
        return Act(do=do, to="" if args.team else args.to or ROOT, text=words[0], by=args.by)
    to = words.pop(0) if words else ""
    return Act(do=do, to=to, text=words[0] if words else "", by=args.by)


_FORM = {
    "pause": "", "go": "", "say": "TEXT", "edit": "EVENT TEXT", "stop": "AGENT [WHY]", "approve": "ID [WHY]",
    "refuse": "ID [WHY]",
}  # fmt: skip
_WORDS = {
    "pause": (0, 0), "go": (0, 0), "say": (1, 1), "edit": (2, 2), "stop": (1, 2), "approve": (1, 2), "refuse": (1, 2),
}  # fmt: skip


def _tell(act: Act, event: Event | None, trace: Trace) -> int:
    """What came of an act."""
    if event is None and act.do == "edit" and not trace.finished:
        say(f"stands   {printable(act.to)} says this when it happens")
        return 0
    if event is None:
        ended = (
            "the run ended before it" if trace.finished else "the run has not come to it yet; it stays kept"
        )
        remark(f"baton steer: {ended}.")
        return 1
    if event.status == "invalid":
        why = printable(str(event.extra.get("why", "it could not be done"))).rstrip(".")
        remark(f"baton steer: {why}{'' if why.endswith('?') else '.'}")
        return 1
    say(f"{_DONE[act.do]:<8} {event.id} in {trace.trace_id}")
    return 0


_DONE = {
    "pause": "paused", "go": "goes on", "say": "said", "edit": "edited", "stop": "stopped", "approve": "approved",
    "refuse": "refused",
}  # fmt: skip


def _show(trace_id: str, standing: RunStanding | None, *, finished: bool, place: str) -> None:
    if standing is None:
        say(f"{trace_id}  {'has ended' if finished else 'is not at work'}")
        if not finished:
            say(f"Type: {resume_command(place)}")
        return
    say(f"{trace_id}  {'paused' if standing.paused else 'at work'}")
    rows: tuple[tuple[str, tuple[dict[str, Any], ...], Callable[[dict[str, Any]], str]], ...] = (
        ("agents", standing.agents, lambda each: f"{each['id']} ({each['role']}) {each['doing']}"),
        ("unread", standing.unread, lambda each: f"{each['event']} to {each['to']}: {each['text']}"),
        ("coming", standing.coming, _coming),
        ("asks", standing.requests, _asks),
    )
    for name, found, told in rows:
        for number, each in enumerate(found[:_SHOWN]):
            line = (
                printable(told(each)) if name == "asks" else _short(told(each))
            )  # who decides reads all of it
            say(f"{'' if number else name:<8} {line}")
        if len(found) > _SHOWN:
            say(f"{'':<8} and {len(found) - _SHOWN} more")
    if not standing.paused:
        say(f"What agents do and have not read is told while it is paused. Type: baton steer {place} pause")


def _asks(each: dict[str, Any]) -> str:
    return f"{each['id']} {each['agent']} wants {each['tool']} {json.dumps(each['arguments'])}: {each['why']}"


def _coming(each: dict[str, Any]) -> str:
    text = f": {each['text']}" if "text" in each else ""
    return f"{each['event']} {each['do']} {each['to']}".rstrip() + text


def _short(text: str) -> str:
    clean = printable(text.replace("\n", " "))
    return clean if len(clean) <= _MOST_CHARACTERS else clean[:_MOST_CHARACTERS] + "…"
