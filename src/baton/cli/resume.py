"""`baton resume DIR`: go on with runs that were cut off. What was done is not done again."""

from __future__ import annotations

import argparse
import shlex
import sys

from baton.cli.run import parse_policies
from baton.compose.build import at_work, describe
from baton.compose.stores import resume_command, store_to_resume
from baton.compose.trust import add_trust, team_again
from baton.compose.waking import run_waking
from baton.errors import UsageError
from baton.team.recording import StoreJournal
from baton.team.running import resuming
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import list_traces, read_store
from baton.view.terminal.live import live_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="where `baton run` wrote")
    parser.add_argument("--trace", metavar="ID", help="only this one; otherwise all that are unfinished")
    parser.add_argument(
        "--policy", metavar="P", action="append", default=[], help="another engine: P or ROLE=P"
    )
    add_trust(parser)
    parser.add_argument(
        "--instruct",
        metavar="AGENT=TEXT",
        action="append",
        default=[],
        help="a person's word to an agent; repeatable",
    )


def run(args: argparse.Namespace) -> int:
    path = store_to_resume(args.directory)
    found = list_traces(path)
    if args.trace is not None and args.trace not in {summary.trace_id for summary in found}:
        known = f"Type: baton stats {shlex.quote(str(path))}"
        raise UsageError(f"there is no trace {args.trace!r} in {path}. {known}")
    todo = [s.trace_id for s in found if not s.finished and args.trace in (None, s.trace_id)]
    if not todo:
        print(f"Nothing to resume in {path}: {len(found)} of {len(found)} runs are finished.")
        return 0
    instructions = {}
    for item in args.instruct:
        agent, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"--instruct {item!r} names no agent. Type: --instruct AGENT=TEXT")
        instructions[agent] = text
    with Store.open(path, durability="process") as store:
        for trace_id in todo:
            (before,) = read_store(path, [trace_id])
            team, assignment = team_again(before, parse_policies(args.policy), trust=args.trust_policies)
            journal = StoreJournal(store, store.writer(trace_id))
            again = resuming(before, team, assignment, journal, instructions=instructions)
            try:
                with live_line(at_work(again)):
                    trace = run_waking(again.go())
            except KeyboardInterrupt:
                store.commit()
                go_on = resume_command(
                    args.directory,
                    trace_id=args.trace,
                    policies=tuple(args.policy),
                    trust=args.trust_policies,
                )
                print(f"\nStopped; everything so far is kept. Type: {go_on}", file=sys.stderr)
                return 130
            print(
                f"{trace_id}: {len(before.events)} events were there, {len(trace.events) - len(before.events)} are new"
            )
            print(describe(trace))
    return 0
