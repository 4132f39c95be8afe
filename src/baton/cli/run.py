"""`baton run TASK`: a team works on a task and leaves a complete trace."""

from __future__ import annotations

import argparse
import shlex
from functools import cache
from pathlib import Path
from statistics import fmean

from msgspec import structs

from baton.cli import add_credentials, add_policy, add_repeated, add_trust
from baton.cli.printing import remark, say
from baton.compose.reached import limits_reached, uncounted_usage
from baton.compose.run_settings import Settings, parse_policies, parse_settings
from baton.compose.runs import default_id, run_all_into, run_into
from baton.compose.stores import resume_command, store_to_write
from baton.compose.team_from_settings import Given, make_team, usual_topology, with_room
from baton.compose.trust import resume_needs_trust
from baton.compose.voter_accuracies import estimated_accuracies
from baton.compose.waking import run_waking
from baton.engine import FORMS, make_engine
from baton.errors import UsageError
from baton.games.reference import REFERENCE as POLICIES
from baton.learn.models import MODELS
from baton.learn.stage import failures, first_line
from baton.registry import names
from baton.team.credentials import credentials_of
from baton.team.guard.policy import guard_of
from baton.team.team import Team
from baton.trace.formats.sqlite.store_read import list_traces, read_store
from baton.trace.outcome import team_return
from baton.trace.trace import Trace, repeats
from baton.view.terminal.endings import how_it_went
from baton.view.terminal.live import live_line
from baton.view.terminal.run_lines import describe, spent, watching
from baton.view.text import count as counted
from baton.view.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models = [f"{name}[?device=cuda&dtype=bfloat16] ({what})" for name, (_, what) in MODELS.items()]
    forms = "\n".join(f"  {form}" for form in (*FORMS.values(), "module:factory (of your own)", *models))
    parser.epilog = (
        f"tasks: {', '.join(names('task'))}\ntopologies: {', '.join(names('topology'))}\n\n"
        f"policies:\n  reference (the task's own scripted play)\n"
        f"  {', '.join(POLICIES)} (of games)\n{forms}\n\n"
        "A task, topology, surface, tool or aggregator of your own is module:attr, or a name that an installed package "
        "gives it.\n\n"
        "settings: rounds=3 (of the topology), task.num_shards=8, limits.tokens=5000, latency.jitter=0,\n"
        "  sampling.temperature=0.7, sampling.worker.max_tokens=64, fusion.log_odds.accuracies.peer1=0.8\n\n"
        "example:\n  baton run shard-sum --topology centralized --policy reference --out runs/sum\n"
        "  baton run game:spawn-bandit --policy random --instances 0:4 --rollouts 8 --out runs/groups"
    )
    parser.add_argument("task", metavar="TASK", help="what to work on")
    parser.add_argument(
        "--topology", metavar="T", help="who is in the team (the task's own, else centralized)"
    )
    add_policy(parser, "who answers: P for all, ROLE=P for one")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the instance and all draws (0)")
    parser.add_argument(
        "--instances", metavar="A:B", help="instances A to B - 1, or one, A (default: the seed's)"
    )
    parser.add_argument(
        "--rollouts",
        type=int,
        metavar="N",
        help="of each instance, with draws of their own: --seed and up (1)",
    )
    parser.add_argument("--split", choices=["train", "test"], default="train", help="which instances (train)")
    add_repeated(parser, "--set", "K=V", "a setting")
    parser.add_argument(
        "--clock", choices=["virtual", "real"], default="virtual", help="how time passes (virtual)"
    )
    parser.add_argument(
        "--surface",
        metavar="S",
        default="lines",
        help=f"how actions are written: {', '.join(names('surface'))}",
    )
    add_repeated(parser, "--tool", "NAME", "one more tool for the team")
    parser.add_argument(
        "--guard",
        metavar="FILE",
        help="what may be done once somebody has read what strangers wrote: a .toml, or module:attr",
    )
    add_trust(parser)
    add_repeated(parser, "--aggregator", "NAME", "one more way to fuse answers")
    parser.add_argument(
        "--shared-memory", action="store_true", help="a memory that all agents may write to and read"
    )
    add_credentials(parser)
    add_repeated(
        parser, "--accuracies", "TRACE", "weigh votes (log_odds) by how often agents were right there"
    )
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="where the trace goes; more runs may go there"
    )


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.seed < 2**63:
        raise UsageError(f"--seed {args.seed}: expected a whole number from 0 to 2^63 - 1.")
    written = parse_settings(args.set)
    if args.shared_memory:
        written.setdefault("shared_memory", {})
    typed = Settings(
        task=args.task,
        topology=args.topology or usual_topology(args.task, written["task_settings"]),
        policies=parse_policies(args.policy) or {"default": "reference"},
        split=args.split,
        seed=args.seed,
        instance=None,
        tools=tuple(args.tool),
        aggregators=tuple(args.aggregator),
        clock=args.clock,
        surface=args.surface,
        guard=None if args.guard is None else guard_of(args.guard, trust=args.trust).table,
        **written,
    )
    path = store_to_write(args.out)
    settings = _weighed(with_room(typed), args.accuracies)
    if args.instances is not None or args.rollouts is not None:
        return _run_all(args, settings, path)
    given = Given(credentials=credentials_of(args.credentials))
    team, assignment = make_team(settings, given)
    working = run_into(path, settings, team, assignment, watching=watching, trace_id=default_id(settings))
    try:
        trace = run_waking(working)
    except KeyboardInterrupt:
        go_on = resume_command(args.out, trust=resume_needs_trust(settings))
        remark(f"\nStopped; everything so far is kept. Type: {go_on}")
        return 130
    say(describe(trace))
    say(f"ended    {how_it_went(trace)}")
    _tell_limits([trace], [team])
    count = len(list_traces(path))
    say(f"trace    {trace.trace_id} in {path}" + (f", which holds {count} now" if count > 1 else ""))
    _tell_of_repeat(path, trace, default_id(settings), args.seed)
    show = ["baton", "show", args.out, *(("--trace", trace.trace_id) if count > 1 else ())]
    say(f"Type: {shlex.join(show)}")
    return _given_up(trace)


def _tell_of_repeat(path: Path, trace: Trace, first: str, seed: int) -> None:
    """The same seed draws the same: whoever runs it again for another rollout is told how to get one."""
    if trace.trace_id == first or first not in {summary.trace_id for summary in list_traces(path)}:
        return
    (before,) = read_store(path, [first])
    if repeats([before, trace]):
        say(
            f"again    as {first}, draw for draw: the two count as one rollout. For another: --seed {seed + 1}"
        )


def _run_all(args: argparse.Namespace, settings: Settings, path: Path) -> int:
    """A group of rollouts of each instance, side by side."""
    rollouts = 1 if args.rollouts is None else args.rollouts
    if rollouts < 1:
        raise UsageError(f"--rollouts {rollouts}: expected 1 or more.")
    # A seed for each run: rollouts with one seed would draw alike on every instance.
    wanted = [one for one in _instances(args.instances, args.seed) for _ in range(rollouts)]
    each = [
        structs.replace(settings, instance=instance, seed=args.seed + number)
        for number, instance in enumerate(wanted)
    ]
    make = cache(make_engine)  # a model is loaded once
    ended: list[Trace] = []
    with live_line(lambda seconds: f"{len(ended)} of {len(each)} runs, {seconds:.0f} s"):
        given = Given(credentials=credentials_of(args.credentials))
        planned = [(one, *make_team(one, given, make=make)) for one in each]
        try:
            traces = run_waking(run_all_into(path, planned, ended.append))
        except KeyboardInterrupt:
            go_on = resume_command(args.out, trust=resume_needs_trust(settings))
            remark(f"\nStopped; everything so far is kept. Type: {go_on}")
            return 130
    for trace in traces:
        rewards = ", ".join(f"{r.channel} {r.value:g}" for r in trace.rewards)
        say(f"{trace.trace_id}  {rewards or 'no reward'}  {spent(trace)}")
    returns = [team_return(trace) for trace in traces if trace.rewards]
    mean = f", mean return {fmean(returns):.3f}" if returns else ""
    say(f"{counted(len(traces), 'trace')} in {path}{mean}")
    _tell_limits(traces, [team for _, team, _ in planned])
    if rollouts > 1:
        say(f"Type: {shlex.join(['baton', 'credit', args.out, '--estimator', 'group'])}")
    return max(_given_up(trace) for trace in traces)


def _tell_limits(traces: list[Trace], teams: list[Team]) -> None:
    """Say which limits and caps cut these runs short, and who did not count what was spent."""
    for said in uncounted_usage(teams):
        remark(f"baton run: {printable(said)}")
    for said in limits_reached(traces):
        remark(f"baton run: {printable(said)}")


def _instances(given: str | None, seed: int) -> range:
    if given is None:
        return range(seed, seed + 1)
    first, colon, last = given.partition(":")
    try:
        found = range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        found = range(0)
    if not found or found.start < 0:
        raise UsageError(f"--instances {given}: expected A:B with 0 <= A < B, such as 0:8, or one number.")
    return found


def _weighed(settings: Settings, paths: list[str]) -> Settings:
    """With what past runs tell of how often each agent is right; what was typed goes before it."""
    if not paths:
        return settings
    found = estimated_accuracies(paths, settings)
    say("accuracies  " + ", ".join(f"{agent} {p:.3g}" for agent, p in found.items()))
    known = settings.fusion.get("log_odds", {})
    accuracies = {**found, **known.get("accuracies", {})}
    fusion = {**settings.fusion, "log_odds": {**known, "accuracies": accuracies}}
    return structs.replace(settings, fusion=fusion)


def _given_up(trace: Trace) -> int:
    """1 where an agent's last call was not answered: the reward then tells nothing of the team."""
    last = {call.agent: call for call in trace.calls}
    if all(call.finish_reason != "error" for call in last.values()):
        return 0
    errors = [error for _, error in failures(trace)]
    remark(
        f"baton run: {len(errors)} of {len(trace.calls)} calls were not answered, so the reward tells nothing of the "
        f"team. The first error: {first_line(errors[0])}.",
    )
    return 1
