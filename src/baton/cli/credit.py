"""`baton credit TRACE... --estimator E`: who earned what, by any estimator, from saved traces."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import structs

from baton.compose.trust import TRUST, add_trust, team_again
from baton.credit import ESTIMATORS, find, team_return
from baton.credit.estimator import Credits, Estimator
from baton.errors import UsageError, nearest
from baton.settings import read_value
from baton.team.forks import Cost, Fork, Forks
from baton.team.intervene import Intervention
from baton.team.protocol import Answer
from baton.team.team import Team
from baton.trace.formats import find_format, format_of_name, read_all, write
from baton.trace.trace import Trace, meta_table
from baton.trace.vocabulary import CREDIT_UNITS
from baton.view.terminal.live import live_line
from baton.view.terminal.screen import emit
from baton.view.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  baton credit --list\n"
        "  baton credit runs/*.jsonl --unit team --estimator group\n"
        "  baton credit runs/sum --unit agent --estimator agent-group --set counts=team --json\n"
        "  baton credit runs/sum --estimator gae --set value=my_critic:value --out credited.jsonl"
    )
    parser.add_argument("paths", nargs="*", metavar="TRACE", help="files that hold traces")
    parser.add_argument("--unit", metavar="U", help=f"who gets it: {', '.join(CREDIT_UNITS)}")
    parser.add_argument("--estimator", metavar="E", help="how it is worked out (see --list)")
    parser.add_argument("--list", action="store_true", help="every estimator, its unit, needs and source")
    parser.add_argument(
        "--group-by",
        choices=("instance", "task", "none"),
        default="instance",
        help="what to compare: rollouts of one instance (default), of one task over all its instances, "
        "or none: each trace by itself",
    )
    parser.add_argument("--reward", metavar="CHANNEL", help="which team reward, where there are several")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="K=V",
        help="a setting of the estimator; a function is module:function",
    )
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="every credit record, as JSON")
    parser.add_argument("--out", metavar="PATH", help="write the traces with their credits here")
    parser.add_argument("--force", action="store_true", help="replace what is at --out")


def run(args: argparse.Namespace) -> int:
    if args.list:
        _list(args.unit, args.json)
        return 0
    estimator = _chosen(args.unit, args.estimator)
    settings = parse_settings(estimator, args.set)
    if not args.paths:
        raise UsageError(f"no traces given. Type: baton credit TRACE... --estimator {estimator.name}")
    if args.trust_policies and "runtime" not in estimator.needs:
        raise UsageError(f"estimator {estimator.name} does not run traces again; leave {TRUST} out.")
    if args.out is not None:
        _check_target(args.out, args.force)
    traces = [trace for path in args.paths for trace in read_all(path)]
    if not traces:
        raise UsageError(f"{', '.join(args.paths)}: no trace in there.")
    if estimator.takes_reward:
        settings["reward"] = partial(team_return, channel=args.reward)
    elif args.reward is not None:
        raise UsageError(
            f"estimator {estimator.name} does not look at the team's return; leave --reward out."
        )
    credits: Credits = [[] for _ in traces]
    for places in _groups(traces, args.group_by):
        group = [traces[place] for place in places]
        found = _estimate(estimator, group, args.unit, settings, trust=args.trust_policies)
        for place, mine in zip(places, found, strict=True):
            credits[place] = mine
    if args.out is not None:
        write(map(_credited, traces, credits), args.out)
    if args.json:
        _print_json(estimator, traces, credits)
    else:
        _print_table(traces, credits)
    return 0


def _chosen(unit: str | None, name: str | None) -> Estimator:
    if unit is not None and unit not in CREDIT_UNITS:
        raise UsageError(f"there is no unit {unit!r}. {nearest(unit, CREDIT_UNITS)}")
    if name is None:
        fitting = [e.name for e in ESTIMATORS.values() if unit is None or unit in e.units]
        raise UsageError(
            f"say how with --estimator. For {unit or 'all units'}: {', '.join(sorted(fitting))}."
        )
    return find(name)


def _estimate(
    estimator: Estimator, group: list[Trace], unit: str | None, settings: dict[str, Any], *, trust: bool
) -> Credits:
    if "runtime" not in estimator.needs:
        return estimator(group, unit=unit, **settings)
    named = {name: value for name, value in settings.items() if name != "reward"}
    given = {**settings, **estimator.bind(unit=unit, **named)}
    runner = _Runner(group[0], trust=trust)
    with live_line(
        lambda seconds: f"{runner.num_run:,} branches run, {runner.cost.tokens:,} tokens, {seconds:.0f} s"
    ):
        found: Credits = asyncio.run(estimator.function(group, runner=runner, **given))
    return found


class _Runner:
    """Forks each trace with the team and the seed that made it."""

    def __init__(self, first: Trace, *, trust: bool) -> None:
        self._trust = trust
        self._of: dict[bytes, Forks] = {}
        self.team: Team = self._forks(first).team
        """Traces of one group have the same harness."""

    def _forks(self, trace: Trace) -> Forks:
        from baton.compose.build import settings_of

        key = msgspec.json.encode(settings_of(trace, {}))
        if key not in self._of:
            self._of[key] = Forks(*team_again(trace, {}, trust=self._trust))
        return self._of[key]

    async def fork(self, trace: Trace, interventions: Sequence[Intervention] = (), **more: Any) -> Fork:
        return await self._forks(trace).fork(trace, interventions, **more)

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        return await self._forks(trace).ask(trace, call_id, replicates)

    @property
    def cost(self) -> Cost:
        return sum((forks.cost for forks in tuple(self._of.values())), Cost())

    @property
    def num_run(self) -> int:
        return sum(forks.num_run for forks in tuple(self._of.values()))


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
        return _function(name, text)
    if any(isinstance(each, type) and issubclass(each, msgspec.Struct) for each in kinds):
        raise UsageError(
            f"setting {name} is a {kind}, which cannot be given on the command line. Leave it out."
        )
    return read_value(text)


def _function(name: str, text: str) -> Any:
    module_name, colon, function_name = text.partition(":")
    if not colon:
        raise UsageError(
            f"setting {name} is a function and {text!r} names none. Type: --set {name}=module:function"
        )
    try:
        found = getattr(import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"setting {name}: {error}. The module must be on PYTHONPATH.") from None
    if not callable(found):
        raise UsageError(f"setting {name}: {text} is not a function.")
    return found


def _groups(traces: Sequence[Trace], by: str) -> Iterable[list[int]]:
    """Places of the traces that are compared with each other."""
    if by == "none":
        return [[place] for place in range(len(traces))]
    found: dict[bytes, list[int]] = {}
    for place, trace in enumerate(traces):
        key: Any = trace.header.task_id
        spec = meta_table(trace.header, "run", "task")
        if by == "task" and "task" in spec:
            key = [spec["task"], spec.get("settings")]
        found.setdefault(msgspec.json.encode(key, order="deterministic"), []).append(place)
    return found.values()


def _credited(trace: Trace, credits: list[Any]) -> Trace:
    """With these credits in the place of earlier ones by the same estimator."""
    names = {credit.estimator for credit in credits}
    kept = tuple(credit for credit in trace.credits if credit.estimator not in names)
    return structs.replace(trace, credits=(*kept, *credits))


def _check_target(path: str, force: bool) -> None:
    """An error now rather than after the work."""
    kind = format_of_name(path)
    if not Path(path).exists():
        return
    if not find_format(kind).is_text:
        raise UsageError(f"{path} is there already, and {kind} is only ever added to. Give another --out.")
    if not force:
        raise UsageError(f"{path} is there already. Type --force to replace it, or give another --out.")


def _print_json(estimator: Estimator, traces: Sequence[Trace], credits: Credits) -> None:
    rows = [
        {
            "trace_id": trace.trace_id,
            "credits": [{f: getattr(credit, f) for f in credit.__struct_fields__} for credit in mine],
        }
        for trace, mine in zip(traces, credits, strict=True)
    ]
    found = {"estimator": _about(estimator), "traces": rows}
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")


def _about(estimator: Estimator) -> dict[str, Any]:
    return {
        "name": estimator.name,
        "units": estimator.units,
        "needs": sorted(estimator.needs),
        "settings": list(estimator.settings),
        "source": estimator.source,
        "evidence": estimator.evidence,
        "about": estimator.about,
    }


def _print_table(traces: Sequence[Trace], credits: Credits) -> None:
    rows = [("trace", "unit", "target", "credit", "± stderr", "re-run")]
    rows.extend(
        (
            printable(trace.trace_id),
            credit.unit,
            printable(credit.target),
            f"{credit.value:+.4f}",
            "not known" if credit.stderr is None else f"{credit.stderr:.4f}",
            f"{credit.cost_tokens or 0:,} tokens",
        )
        for trace, mine in zip(traces, credits, strict=True)
        for credit in mine
    )
    _emit_rows(rows)
    notes = sorted({note for mine in credits for credit in mine for note in credit.assumes})
    if notes:
        emit([[(f"assumes: {printable('; '.join(notes))}", "dim")]])


def _list(unit: str | None, as_json: bool) -> None:
    if unit is not None and unit not in CREDIT_UNITS:
        raise UsageError(f"there is no unit {unit!r}. {nearest(unit, CREDIT_UNITS)}")
    found = [e for e in ESTIMATORS.values() if unit is None or unit in e.units]
    found.sort(key=lambda e: (CREDIT_UNITS.index(e.units[0]), e.name))
    if as_json:
        sys.stdout.write(
            msgspec.json.format(msgspec.json.encode([_about(e) for e in found]), indent=2).decode() + "\n"
        )
        return
    rows = [("estimator", "unit", "needs", "evidence", "source")]
    rows.extend(
        (e.name, ", ".join(e.units), ", ".join(sorted(e.needs)) or "-", f"[{e.evidence}]", e.source)
        for e in found
    )
    _emit_rows(rows)


def _emit_rows(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    emit(
        [("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip(), "")]
        for row in rows
    )
