"""`baton replay TRACE`: run a trace again from its own answers, and see that it comes out the same."""

from __future__ import annotations

import argparse

from baton.cli import add_trace, add_trust
from baton.cli.printing import say
from baton.compose.again import as_played, recorded_team
from baton.compose.runs import one_trace
from baton.compose.waking import run_waking
from baton.team.running import replay
from baton.trace.canonical import canonical_hash


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace(parser, "a trace that `baton run` or `baton train` made")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    trace = one_trace(args.path, args.trace)
    team, assignment = recorded_team(args.path, trace, trust=args.trust)
    again = as_played(run_waking(replay(trace, team, assignment)))
    before, after = canonical_hash(as_played(trace), times=True), canonical_hash(again, times=True)
    say(f"{trace.trace_id}: {len(again.events)} events, no model was asked")
    say(f"recorded {before}\nreplayed {after}  {'identical' if before == after else 'DIFFERENT'}")
    return 0 if before == after else 1
