"""`baton fork`: what would have happened if one thing had been different, in a trace or in a program's session."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from baton.cli import add_credentials, add_policy, add_trace, add_trust
from baton.cli.printing import remark, say
from baton.cli.program_words import add_engine, add_program, add_replay, program_of, refuse_program_options
from baton.compose.again import team_again
from baton.compose.python_runs import parse_action
from baton.compose.reached import uncounted_usage
from baton.compose.run_settings import parse_policies
from baton.compose.runs import one_trace
from baton.compose.stores import check_store, store_path
from baton.compose.team_from_settings import Given
from baton.compose.waking import run_waking
from baton.errors import UsageError
from baton.team.credentials import credentials_of
from baton.team.forking import fork_id
from baton.team.forks import fork
from baton.team.intervene import BarAgent, Drop, Force, Intervention, Replace
from baton.trace.formats import format_of_name, write
from baton.trace.formats.sqlite.store_read import list_traces
from baton.trace.outcome import estimated_tokens
from baton.trace.trace import Trace
from baton.view.terminal.run_lines import describe
from baton.view.text import printable, tokens_said

RUNS_PROGRAM = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton fork runs/sum --at worker2#2 --replace 0 --out runs/sum-fork\n"
        '  baton fork runs/sum --at orchestrator#1 --do "stop I do not know" --out stopped.jsonl\n'
        "  baton fork runs/sum --bar worker3 --out without.jsonl\n"
        '  baton fork runs/flagship --trace after-0 --at orchestrator#1 --do "stop none" --out trained.jsonl\n'
        '  baton fork runs/mine --session main --at 3 --replace "Paris" -- python my_agent.py\n\n'
        "After -- stands a program that `baton serve` recorded: it is run once more, with one answer different."
    )
    add_trace(parser, "a trace that `baton run` or `baton train` made, or a session that `baton serve` kept")
    add_program(parser, "the recorded program, to be run with one answer different")
    parser.add_argument(
        "--at",
        metavar="EVENT",
        help="the event that is different (see `baton show`); of a program, also a call",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--replace", metavar="TEXT", help="its content is this")
    what.add_argument("--blank", action="store_true", help="its content is empty")
    what.add_argument("--drop", action="store_true", help="it does not take effect")
    what.add_argument(
        "--do", metavar="COMMAND", help='another action, such as "stop 42" or "spawn worker: x"'
    )
    what.add_argument("--force", nargs="?", const="", help=argparse.SUPPRESS)  # what --do was called in 0.2
    what.add_argument("--bar", metavar="AGENT", help="this agent cannot be spawned")
    what.add_argument(
        "--replace-tool", nargs=2, metavar=("NAME", "JSON"), help="with --: it asks for this tool instead"
    )
    what.add_argument("--reply", metavar="FILE", help="with --: the answer is in a file, as text or .json")
    what.add_argument("--redraw", action="store_true", help="with --: the answer is drawn anew")
    parser.add_argument(
        "--person", metavar="NAME", help="a person makes the change: it is written as an intervention"
    )
    parser.add_argument(
        "--replicate", type=int, default=0, metavar="N", help="other random draws for what runs anew"
    )
    add_policy(parser)
    add_engine(parser)
    add_replay(parser)
    add_credentials(parser)
    add_trust(parser)
    parser.add_argument("--allow-impure", action="store_true", help="let tools act on the world again")
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="where the fork goes: DIR, .jsonl or .db; with --, DIR (default: beside the session)",
    )


def run(args: argparse.Namespace) -> int:
    program = program_of(args)
    if program is not None:
        from baton.cli.program_fork import run_program_fork

        return run_program_fork(args, program)
    refuse_program_options(args, "replace_tool", "reply", "redraw", "engine")
    if args.out is None:
        raise UsageError("where does the fork go? Type: --out DIR, for example --out runs/fork")
    trace = one_trace(args.path, args.trace)
    changes = [_intervention(args)]
    given = Given(credentials=credentials_of(args.credentials))
    out = store_path(args.out)
    _check_free(out, fork_id(trace, changes, args.replicate))
    team, assignment, who = team_again(
        trace, parse_policies(args.policy), path=args.path, trust=args.trust, given=given
    )
    made = run_waking(
        fork(trace, team, assignment, changes, replicate=args.replicate, allow_impure=args.allow_impure)
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write(made.trace, out)
    for said in uncounted_usage([team]):
        remark(f"baton fork: {said}")
    if args.do is not None:
        _tell_if_invalid(made.trace, args.at, args.do)
    usage = made.usage
    kept = usage.tokens_reused and estimated_tokens(trace)
    ran, reused = tokens_said(usage.tokens_run, usage.estimated_run), tokens_said(usage.tokens_reused, kept)
    marked = " (estimated)" if kept or usage.estimated_run else ""
    say(f"before\n{describe(trace)}\nafter\n{describe(made.trace)}")
    say(
        f"again    calls: {usage.calls_run} ran ({ran} tokens), {usage.calls_reused} were reused ({reused} tokens)"
        f"{marked}; tools: {usage.tools_run} ran, {usage.tools_reused} were reused"
    )
    if who is not None:
        say(f"who      new answers are by checkpoint {who}")
    say(f"changed  {len(made.invalidated)} of {len(trace.events)} events: {_some(made.invalidated)}")
    say(f"fork     {made.trace.trace_id} in {out}")
    return 0


def _tell_if_invalid(made: Trace, at: str, do: str) -> None:
    """An action that was not open there changed nothing but the turn: before and after then compare something else."""
    event = next((event for event in made.events if event.id == at), None)
    if event is not None and event.status == "invalid":
        why = printable(made.text(event.content_ref) or "it was invalid")
        remark(f"baton fork: {printable(do)!r} was not done at {at}: {why}")


def _check_free(out: Path, trace_id: str) -> None:
    """Before anything runs: the fork can be written where it is to go."""
    kind = format_of_name(out)  # a name that says none is refused
    if not out.exists():
        return
    if kind != "sqlite":
        raise UsageError(f"{out} is there already. Give another --out.")
    check_store(out)
    if trace_id in {summary.trace_id for summary in list_traces(out)}:
        raise UsageError(
            f"{out} already holds this fork, {trace_id}. Choose another --out, or --replicate N for other draws."
        )


def _intervention(args: argparse.Namespace) -> Intervention:
    if args.force is not None:
        raise UsageError(
            "--force replaces files, and a fork replaces none. For another action, type: "
            f"--do {shlex.quote(args.force or 'stop 42')}"
        )
    if args.bar is not None:
        for given, option in ((args.at, "--at"), (args.person, "--person")):
            if given is not None:
                raise UsageError(f"--bar {args.bar} is of an agent and not of an event. Leave {option} out.")
        return BarAgent(args.bar)
    if args.at is None:
        raise UsageError("which event? Type: --at EVENT, for example --at worker1#1 (see `baton show`)")
    if args.drop:
        return Drop(args.at, args.person)
    if args.do is None:
        return Replace(args.at, "" if args.blank else args.replace, args.person)
    return Force(args.at, parse_action(args.do), args.person)


def _some(ids: tuple[str, ...], limit: int = 8) -> str:
    return ", ".join(ids[:limit]) + (", …" if len(ids) > limit else "") if ids else "none"
