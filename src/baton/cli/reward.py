"""`baton reward TRACE... --recipe R`: what traces are worth, by a recipe of reward rules."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import structs

from baton.cli import add_repeated, add_trust
from baton.cli.gold_file import REWARD_DATA, check_gold_keys, gold_of, read_gold
from baton.cli.out_file import add_out, check_free
from baton.cli.printing import aligned, print_json, remark, say
from baton.compose.known import reward_gold
from baton.compose.runs import traces_at
from baton.errors import UsageError
from baton.learn.judging import judge_traces, judges_of
from baton.reward import Finding, Gold, RewardRecipe, load_reward_recipe, reward_recipes, watch, with_rewards
from baton.reward.process_model import held_out, learn_process_model, quality_of
from baton.reward.reading import outcome
from baton.trace.formats import write
from baton.trace.records import Reward
from baton.trace.trace import Trace, drawn, is_fork, standing
from baton.view.terminal.fitting import Line
from baton.view.terminal.screen import emit
from baton.view.text import count, printable

_NAMED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    recipes = reward_recipes()
    width = max(map(len, recipes))
    rows = "\n".join(f"  {name:<{width}}  {about}" for name, about in recipes.items())
    parser.epilog = (
        f"built-in recipes:\n{rows}\n\nThe right answer comes from the task that `baton run` was given, "
        "from --gold, or else from\nthe outcome the trace records.\n\n"
        "example:\n  baton reward runs/sum --recipe parl"
    )
    parser.add_argument("paths", nargs="+", metavar="TRACE", help="files that hold traces")
    parser.add_argument("--recipe", metavar="R", help="a built-in recipe, or a path to a .toml")
    parser.add_argument(
        "--learn",
        metavar="FILE",
        help="learn a process model from how these traces came out, for the rule scorer, and write it here",
    )
    parser.add_argument(
        "--gold",
        metavar="PATH",
        help=f"what is known of the instance, as JSON: {', '.join(REWARD_DATA)}; or that by trace id",
    )
    parser.add_argument("--monitor", action="store_true", help="look for ways of gaming a reward as well")
    add_repeated(
        parser,
        "--judge",
        "[NAME=]SPEC",
        "ask this model (openai:MODEL@URL, torch:DIR) for what the recipe wants judged",
    )
    parser.add_argument("--ask", metavar="TEXT", help="what to ask the judges, for a number from 0 to 10")
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="every record as JSON")
    add_out(parser, "rewards")


def run(args: argparse.Namespace) -> int:
    if args.ask is not None and not args.judge:
        raise UsageError("--ask is what a judge is asked. Name one: --judge openai:MODEL@URL")
    if (args.recipe is None) == (args.learn is None):
        raise UsageError(
            "give one of --recipe R (what the traces are worth) and --learn FILE (a process model)."
        )
    if args.learn is not None:
        return _learn(args)
    recipe = load_reward_recipe(args.recipe, trust=args.trust)
    given = read_gold(args.gold, REWARD_DATA) if args.gold is not None else {}
    if args.out is not None:
        check_free(args.out, args.force)
    traces = traces_at(*args.paths)
    check_gold_keys(args.gold, given, {trace.trace_id for trace in traces})
    gold = {
        trace.trace_id: reward_gold(trace, gold_of(given, trace.trace_id), trust=args.trust)
        for trace in traces
    }
    if args.judge:
        traces = _judge(recipe, traces, [gold[trace.trace_id] for trace in traces], args)
    scored = [recipe.score(trace, gold[trace.trace_id]) for trace in traces]
    paid = list(map(with_rewards, traces, scored))
    findings = watch(paid, gold) if args.monitor else []
    if args.out is not None:
        write(paid, args.out)
    if args.json:
        document = {
            "recipe": recipe,
            "traces": [
                {
                    "trace_id": trace.trace_id,
                    "forked_from": trace.header.meta.get("forked_from"),
                    "rewards": [{"channel": r.channel, **structs.asdict(r)} for r in rewards],
                }
                for trace, rewards in zip(traces, scored, strict=True)
            ],
            "findings": [{**structs.asdict(f), "message": f.told, "fired": f.fired} for f in findings]
            if args.monitor
            else None,
        }
        return print_json(document)
    emit([line for pair in zip(traces, scored, strict=True) for line in _table(*pair)])
    emit([line for finding in findings for line in _finding(finding)])
    return 0


def _judge(
    recipe: RewardRecipe, traces: Sequence[Trace], gold: Sequence[Gold], args: argparse.Namespace
) -> list[Trace]:
    """The traces with the judges' verdicts on them; what they gave none on is said."""
    found = asyncio.run(judge_traces(recipe.rules, traces, gold, judges_of(args.judge, args.ask)))
    if not found.num_asked:
        names = ", ".join(rule.name for rule in recipe.rules)
        raise UsageError(f"nothing in these traces is to be judged by {names}. Leave --judge out.")
    for one in found.unjudged[:_NAMED]:
        where = printable(f"{one.trace_id}:{one.event}")
        remark(f"baton reward: {one.judge} gave no verdict on {where}: {printable(one.why)}")
    if len(found.unjudged) > _NAMED:
        remark(f"baton reward: and {len(found.unjudged) - _NAMED} more")
    return list(found.traces)


def _learn(args: argparse.Namespace) -> int:
    """Learn a process model from four traces in five, and say how it does on the fifth."""
    if Path(args.learn).exists():
        raise UsageError(f"{args.learn} is there already. Give another --learn.")
    every = traces_at(*args.paths)
    traces = drawn(every)
    if left := len(every) - len(traces):
        forks = sum(map(is_fork, every)) if not is_fork(traces[0]) else 0
        parts = [count(forks, "fork")] * bool(forks) + [count(left - forks, "repeat")] * (left > forks)
        remark(f"baton reward: {' and '.join(parts)} left out: no rollouts of their own.")
    given = read_gold(args.gold, REWARD_DATA) if args.gold is not None else {}
    outcomes = [
        outcome(trace, reward_gold(trace, gold_of(given, trace.trace_id), trust=args.trust))[0]
        for trace in traces
    ]
    kept = held_out(traces)
    sides = [
        [(t, o) for t, o, out in zip(traces, outcomes, kept, strict=True) if out is side]
        for side in (False, True)
    ]
    mine, others = sides
    model = learn_process_model([t for t, _ in mine], [o for _, o in mine])
    model.save(args.learn)
    say(f"{args.learn}: {len(model.weights)} features, learned from {len(mine)} traces")
    if others:
        base = sum(o for _, o in mine) / len(mine)
        found = quality_of(model, [t for t, _ in others], [o for _, o in others], base)
        auc = "not measured" if found.auc is None else f"{found.auc:.3f}"
        say(
            f"{found.traces} held out, {found.prefixes} prefixes: squared error {found.brier:.3f} (of always saying "
            f"{base:.2f}: {found.brier_of_base_rate:.3f}), right order at the same turn {auc} (0.5 is chance)"
        )
    say(f'use it: [[rules]] rule = "scorer", model = "{args.learn}"')
    return 0


def _table(trace: Trace, rewards: list[Reward]) -> Iterator[Line]:
    about = ", ".join(filter(None, (trace.header.task_id, standing(trace))))
    yield [(f"{printable(trace.trace_id)}  ", "bold"), (printable(about), "dim")]
    if not rewards:
        yield [("  nothing in this trace to reward", "dim")]
        return
    rows = [(r.channel, r.unit, printable(r.target), f"{r.value:.6g}") for r in rewards]
    head = ("channel", "unit", "target", "value")
    yield from aligned([head, *rows], right=(3,), indent=2)


def _finding(finding: Finding) -> Iterator[Line]:
    """Fired, quiet or not measured: what nobody could look at is not quiet."""
    if finding.score is None:
        yield [("not measured  ", "yellow"), (finding.mode, "")]
    else:
        state, style = ("FIRED", "red") if finding.fired else ("quiet", "green")
        yield [(f"{state}  ", style), (f"{finding.mode}  {finding.score:.2f} of {finding.threshold:.2f}", "")]
    yield [(f"       {printable(finding.told)}", "dim")]
    if finding.fired:
        yield [(f"       evidence: {printable(', '.join(finding.events[:8]))}", "dim")]
