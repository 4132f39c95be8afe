"""`baton replay TRACE`: run a trace again from its own answers, and see that it comes out the same."""

from __future__ import annotations

import argparse
import asyncio

from baton.compose.again import as_played, is_trained, kept_in, recorded_team
from baton.compose.build import make_team, one_trace, settings_of
from baton.compose.trust import silent_engine
from baton.team.running import replay
from baton.trace.canonical import canonical_hash


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="TRACE", help="a trace that `baton run` or `baton train` made")
    parser.add_argument("--trace", metavar="ID", help="which one, where there are several")


def run(args: argparse.Namespace) -> int:
    trace = one_trace(kept_in(args.path), args.trace)
    if is_trained(trace):
        team, assignment = recorded_team(args.path, trace)
        again = as_played(asyncio.run(replay(trace, team, assignment)))
        trace = as_played(trace)
    else:
        team, assignment = make_team(settings_of(trace, {}), make=silent_engine)
        again = asyncio.run(replay(trace, team, assignment))
    before, after = canonical_hash(trace, times=True), canonical_hash(again, times=True)
    print(f"{trace.trace_id}: {len(again.events)} events, no model was asked")
    print(f"recorded {before}\nreplayed {after}  {'identical' if before == after else 'DIFFERENT'}")
    return 0 if before == after else 1
