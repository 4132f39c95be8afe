"""`baton resume DIR`: go on with runs that were cut off. What was done is not done again."""

from __future__ import annotations

import argparse

from baton.cli import add_credentials, add_policy, add_repeated, add_trust
from baton.cli.printing import remark, say
from baton.compose.again import team_again
from baton.compose.reached import uncounted_usage
from baton.compose.run_settings import parse_policies
from baton.compose.runs import go_on, unfinished
from baton.compose.stores import resume_command, store_to_resume
from baton.compose.team_from_settings import Given
from baton.compose.waking import run_waking
from baton.errors import UsageError
from baton.team.credentials import credentials_of
from baton.team.recording import RESUMED
from baton.team.team import Assignment, Team
from baton.trace.trace import Trace
from baton.view.terminal.run_lines import describe, watching


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="where `baton run` wrote")
    parser.add_argument("--trace", metavar="ID", help="only this one; otherwise all that are unfinished")
    add_policy(parser)
    add_credentials(parser)
    add_trust(parser)
    add_repeated(parser, "--instruct", "AGENT=TEXT", "a person's word to an agent")


def run(args: argparse.Namespace) -> int:
    path = store_to_resume(args.directory)
    todo, num_runs = unfinished(path, args.trace)
    if not todo:
        say(f"Nothing to resume in {path}: {num_runs} of {num_runs} runs are finished.")
        return 0
    instructions = {}
    for item in args.instruct:
        agent, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"--instruct {item!r} names no agent. Type: --instruct AGENT=TEXT")
        instructions[agent] = text
    policies = parse_policies(args.policy)

    teams: list[Team] = []
    given = Given(credentials=credentials_of(args.credentials))

    def again(trace: Trace) -> tuple[Team, Assignment]:
        team, assignment, _ = team_again(trace, policies, path=str(path), trust=args.trust, given=given)
        teams.append(team)
        return team, assignment

    for trace_id in todo:
        working = go_on(path, trace_id, again, instructions=instructions, watching=watching)
        try:
            before, trace = run_waking(working)
        except KeyboardInterrupt:
            following = resume_command(
                args.directory, trace_id=args.trace, policies=tuple(args.policy), trust=args.trust
            )
            remark(f"\nStopped; everything so far is kept. Type: {following}")
            return 130
        new = len(trace.events) - len(before.events)
        say(f"{trace_id}: {len(before.events)} events were there, {new} are new")
        for event in trace.events[len(before.events) :]:
            if RESUMED in event.extra:
                say(f"lost     {trace.text(event.content_ref)}")
        say(describe(trace))
    for said in dict.fromkeys(uncounted_usage(teams)):
        remark(f"baton resume: {said}")
    return 0
