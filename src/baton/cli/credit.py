"""`baton credit TRACE... --estimator E`: who earned what, from saved traces or by the forks of a program."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from inspect import Parameter
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from msgspec import Struct, structs

from baton import registry
from baton.cli import add_repeated, add_trust
from baton.cli.credit_lines import print_credits, tell_of_the_bound, tell_of_the_cost, tell_of_those_left_out
from baton.cli.out_file import add_out, check_free
from baton.cli.printing import aligned, print_json
from baton.cli.program_words import add_engine, add_replay, refuse_program_options
from baton.compose.credit_traces import (
    CreditLayer,
    CreditWatch,
    TraceRunner,
    credited,
    credits_of,
    partitions_of,
)
from baton.compose.runs import placed_traces
from baton.compose.waking import run_waking
from baton.credit import ESTIMATORS, find
from baton.credit.core.covering import grounds_of
from baton.credit.estimator import CreditError, Credits, Estimator, Value
from baton.credit.estimators.partition import Partition
from baton.credit.stack import StackedCredit, check_stack
from baton.errors import UsageError, nearest
from baton.games.exact_value import optimal_value
from baton.registry import TRUST, imported, is_reference
from baton.settings import read_value
from baton.trace.formats import write
from baton.trace.trace import Trace
from baton.trace.vocabulary import CREDIT_UNITS
from baton.view.terminal.live import live_line
from baton.view.terminal.screen import emit
from baton.view.text import printable

if TYPE_CHECKING:
    from baton.serve.replay.program_forks import ProgramForks

RUNS_PROGRAM = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton credit --list\n"
        "  baton credit runs/*.jsonl --unit team --estimator group\n"
        "  baton credit runs/sum --unit agent --estimator agent-group --set counts=team --json\n"
        "  baton credit runs/sum --estimator gae --set value=my_critic:value --out credited.jsonl\n"
        "  baton credit runs/game --partition --value optimum\n"
        "  baton credit runs/*.jsonl --partition --layer telescope/orchestrator --layer mean\n"
        "  baton credit runs/mine --session main --estimator message-replay -- python my_agent.py"
    )
    parser.add_argument("paths", nargs="*", metavar="TRACE", help="files that hold traces")
    parser.add_argument("--unit", metavar="U", help=f"who gets it: {', '.join(CREDIT_UNITS)}")
    parser.add_argument("--estimator", metavar="E", help="how it is worked out (see --list)")
    parser.add_argument(
        "--partition",
        action="store_true",
        help="split return less baseline over all events, exactly, with what nobody chose as luck",
    )
    add_repeated(
        parser, "--layer", "E[/UNIT]", "with --partition: an estimator that stands for its events or agents"
    )
    parser.add_argument(
        "--value",
        metavar="V",
        help="with --partition, what prefixes are worth: group (default; borrowed from the other rollouts), "
        "optimum (of games, exactly) or module:function",
    )
    parser.add_argument("--list", action="store_true", help="every estimator, its unit, needs and source")
    parser.add_argument(
        "--group-by",
        choices=("instance", "task", "none"),
        default="instance",
        help="what to compare: rollouts of one instance (default), of one task over all its instances, "
        "or none: each trace by itself",
    )
    parser.add_argument("--reward", metavar="CHANNEL", help="which team reward, where there are several")
    add_repeated(parser, "--set", "K=V", "a setting of the estimator; a function is module:function")
    add_engine(parser)
    add_replay(parser)
    parser.add_argument(
        "--score", metavar="M:F", help="with --: a function of the program's output, where it posts no reward"
    )
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="every credit record, as JSON")
    add_out(parser, "credits")


def run(args: argparse.Namespace) -> int:
    if args.unit is not None and args.unit not in CREDIT_UNITS:
        raise UsageError(f"there is no unit {args.unit!r}. {nearest(args.unit, CREDIT_UNITS)}")
    if args.list:
        return _list(args.unit, args.json)
    program = getattr(args, "program", None)
    if program is None:
        refuse_program_options(args, "engine", "score")
    if args.partition:
        return _partition(args)
    if args.layer or args.value is not None:
        raise UsageError("--layer and --value are for the exact partition. Type: --partition")
    estimator = _chosen(args.unit, args.estimator)
    settings = parse_settings(estimator, args.set)
    if not args.paths:
        raise UsageError(f"no traces given. Type: baton credit TRACE... --estimator {estimator.name}")
    if args.trust and "runtime" not in estimator.needs:
        raise UsageError(f"estimator {estimator.name} does not run traces again; leave {TRUST} out.")
    if args.out is not None:
        check_free(args.out, args.force)
    if program is not None:
        from baton.cli.program_credit import run_program_credit

        return run_program_credit(args, program, estimator, settings)
    paths, traces = map(list, zip(*placed_traces(*args.paths), strict=True))
    refused: list[tuple[Sequence[Trace], CreditError]] = []
    credits = run_waking(
        credits_of(
            estimator,
            traces,
            unit=args.unit,
            group_by=args.group_by,
            reward=args.reward,
            settings=settings,
            trust=args.trust,
            paths=paths,
            watch=CreditWatch(
                running=watching,
                spending=partial(tell_of_the_cost, estimator),
                refused=lambda group, error: refused.append((group, error)),
            ),
        )
    )
    tell_of_those_left_out(traces, credits, refused)
    tell_of_the_bound(credits)
    return tell_credits(args, estimator, traces, credits)


def tell_credits(
    args: argparse.Namespace, estimator: Estimator, traces: Sequence[Trace], credits: Credits
) -> int:
    """Write them where they are to go, and print them."""
    if args.out is not None:
        write(map(credited, traces, credits), args.out)
    if args.json:
        rows = [
            {"trace_id": trace.trace_id, "credits": [structs.asdict(credit) for credit in mine]}
            for trace, mine in zip(traces, credits, strict=True)
        ]
        told = structs.asdict(grounds_of(traces, credits))
        return print_json({"estimator": _about(estimator), "grounds": told, "traces": rows})
    print_credits(traces, credits)
    return 0


def _partition(args: argparse.Namespace) -> int:
    if args.estimator is not None or args.unit is not None:
        raise UsageError("a partition is over all units; give estimators as layers. Type: --layer E/UNIT")
    layers = _layers(args.layer, args.set)
    value = _value(args.value)
    if not args.paths:
        raise UsageError("no traces given. Type: baton credit TRACE... --partition")
    if args.out is not None:
        check_free(args.out, args.force)
    paths, given = map(list, zip(*placed_traces(*args.paths), strict=True))
    every = run_waking(
        partitions_of(
            given,
            layers,
            value=value,
            group_by=args.group_by,
            reward=args.reward,
            trust=args.trust,
            paths=paths,
            watch=CreditWatch(running=watching),
        )
    )
    tell_of_those_left_out(given, [[] if each is None else list(each.credits) for each in every])
    if args.out is not None:
        kept = [() if each is None else each.credits for each in every]
        write(map(credited, given, kept), args.out)
    traces = [trace for trace, each in zip(given, every, strict=True) if each is not None]
    found = [each for each in every if each is not None]
    if args.json:
        return print_json(
            [
                {
                    "trace_id": trace.trace_id,
                    "return": each.total,
                    "baseline": each.baseline,
                    "channels": each.channels,
                    "luck": each.luck,
                    "residual": each.residual,
                    "credits": [structs.asdict(credit) for credit in each.credits],
                }
                for trace, each in zip(traces, found, strict=True)
            ]
        )
    _print_partition(traces, found)
    return 0


def _layers(given: Sequence[str], changes: Sequence[str]) -> list[CreditLayer]:
    """`--layer E/UNIT`, with its settings from `--set E.K=V`."""
    settings: dict[str, list[str]] = {}
    for change in changes:
        name, dot, rest = change.partition(".")
        if not dot or "=" in name:
            raise UsageError(f"--set {change!r} names no layer. Type: --set ESTIMATOR.K=V")
        settings.setdefault(find(name).name, []).append(rest)
    layers = []
    for each in given:
        name, _, unit = each.partition("/")
        estimator = find(name)
        if unit:
            estimator.lands_on(unit) or estimator.bind(unit=unit)  # raises, naming its units
        mine = parse_settings(estimator, settings.pop(estimator.name, []))
        layers.append(CreditLayer(estimator=estimator, unit=unit or None, settings=mine))
    if settings:
        raise UsageError(
            f"--set is for {', '.join(settings)}, which is no layer here. Type: --layer {min(settings)}"
        )
    check_stack(
        StackedCredit(place=f"--layer {text}", estimator=layer.estimator, unit=layer.unit)
        for text, layer in zip(given, layers, strict=True)
    )
    return layers


def _value(name: str | None) -> Value | None:
    if name in (None, "group"):
        return None
    if name == "optimum":
        return optimal_value
    assert name is not None
    if not is_reference(name):
        raise UsageError(f"there is no value {name!r}. Expected group, optimum or module:function.")
    found: Value = named_function("value", name)
    return found


def _print_partition(traces: Sequence[Trace], found: Sequence[Partition]) -> None:
    rows = [("trace", "channel", "records", "sum")]
    for trace, each in zip(traces, found, strict=True):
        counts = Counter(f"{credit.estimator}/{credit.unit}" for credit in each.credits)
        name = printable(trace.trace_id)
        sums = [(printable(channel), f"{counts[channel]:,}", each.channels[channel]) for channel in counts]
        sums += [(f"luck: {kind}", "-", worth) for kind, worth in each.luck.items()]
        rows += [(name, channel, num, f"{worth + 0.0:+.4f}") for channel, num, worth in sums]
        whole = f"return {each.total:.4f} - baseline {each.baseline:.4f}"
        rows.append((name, whole, "=", f"{each.total - each.baseline + 0.0:+.4f}"))
    emit(aligned(rows, ""))


def _chosen(unit: str | None, name: str | None) -> Estimator:
    if name is None:
        fitting = [e.name for e in ESTIMATORS.values() if unit is None or unit in e.units]
        raise UsageError(
            f"say how with --estimator. For {unit or 'all units'}: {', '.join(sorted(fitting))}."
        )
    return find(name)


def watching(runner: TraceRunner | ProgramForks) -> AbstractContextManager[None]:
    """Shows how far forks are."""

    def told(seconds: float) -> str:
        return f"{runner.num_run:,} branches run, {runner.cost.tokens:,} tokens, {seconds:.0f} s"

    return live_line(told)


def parse_settings(estimator: Estimator, given: Sequence[str]) -> dict[str, Any]:
    """`k=v` pairs, read as the setting's own type."""
    found = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair!r} is not K=V. Type: --set eps=0.001")
        parameter = estimator.settings.get(name)
        if parameter is None:
            estimator.bind(**{name: text})  # raises, naming the nearest setting
            continue
        found[name] = _typed(name, text, parameter, estimator.hints.get(name))
    return found


def _typed(name: str, text: str, parameter: Parameter, hint: Any) -> Any:
    kind = str(parameter.annotation)
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if any(get_origin(each) is Callable for each in kinds) or (hint is None and "Callable" in kind):
        return named_function(name, text)
    if any(isinstance(each, type) and issubclass(each, Struct) for each in kinds):
        raise UsageError(
            f"setting {name} is a {kind}, which cannot be given on the command line. Leave it out."
        )
    return read_value(text)


def named_function(name: str, text: str) -> Any:
    if not is_reference(text):
        raise UsageError(
            f"setting {name} is a function and {text!r} names none. Type: --set {name}=module:function"
        )
    found = imported("setting", text)
    if not callable(found):
        raise UsageError(f"setting {name}: {text} is not a function.")
    return found


def _about(estimator: Estimator) -> dict[str, Any]:
    return {
        "name": estimator.name,
        "units": estimator.units,
        "needs": sorted(estimator.needs),
        "settings": list(estimator.settings),
        "source": estimator.source,
        "evidence": estimator.evidence,
        "about": estimator.about,
        "estimand": estimator.estimand or estimator.about,
    }


def _list(unit: str | None, as_json: bool) -> int:
    known = {e.name: e for e in map(find, registry.every("estimator"))}
    found = [e for e in known.values() if unit is None or unit in e.units]
    found.sort(key=lambda e: (CREDIT_UNITS.index(e.units[0]), e.name))
    if as_json:
        return print_json([_about(e) for e in found])
    rows = [("estimator", "unit", "needs", "evidence", "source")]
    rows.extend(
        (e.name, ", ".join(e.units), ", ".join(sorted(e.needs)) or "-", f"[{e.evidence}]", e.source)
        for e in found
    )
    emit(aligned(rows, ""))
    named = [f"{e.name} estimates {e.estimand}" for e in found if e.estimand]
    if named:
        emit([[(line, "dim")] for line in ["", *named]])
    return 0
