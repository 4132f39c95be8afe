"""`baton replay`: run a trace, or a program, again from its own answers, and see that it comes out the same."""

from __future__ import annotations

import argparse

from baton.cli import add_trace, add_trust
from baton.cli.printing import say
from baton.cli.program_words import add_program, add_replay, program_of, refuse_program_options
from baton.compose.again import as_played, recorded_team
from baton.compose.runs import one_trace
from baton.compose.waking import run_waking
from baton.team.running import replay
from baton.trace.canonical import canonical_hash

RUNS_PROGRAM = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton replay runs/sum\n"
        '  baton replay runs/mine --session main -- python my_agent.py "how many?"\n'
        "  baton replay runs/mine/sessions/main.jsonl --mask 'build \\d+' -- ./agent.sh\n\n"
        "After -- stands a program that `baton serve` recorded: it is run once more and answered from the recording."
    )
    add_trace(parser, "a trace that `baton run` or `baton train` made, or a session that `baton serve` kept")
    add_program(parser, "the recorded program, to be run on its recording")
    add_replay(parser)
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    program = program_of(args)
    if program is not None:
        from baton.cli.program_replay import run_program_replay

        return run_program_replay(args, program)
    refuse_program_options(args)
    trace = one_trace(args.path, args.trace)
    team, assignment = recorded_team(args.path, trace, trust=args.trust)
    again = as_played(run_waking(replay(trace, team, assignment)))
    before, after = canonical_hash(as_played(trace), times=True), canonical_hash(again, times=True)
    say(f"{trace.trace_id}: {len(again.events)} events, no model was asked")
    say(f"recorded {before}\nreplayed {after}  {'identical' if before == after else 'DIFFERENT'}")
    return 0 if before == after else 1
