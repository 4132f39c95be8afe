"""`baton measure PATH...`: the survey's reporting checklist filled in, and every figure the traces allow."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from baton import registry
from baton.cli import add_repeated, add_trust
from baton.cli.gold_file import MEASURE_DATA, GoldTables, check_gold_keys, gold_of, read_gold
from baton.cli.printing import print_json, remark
from baton.compose.again import TrainedRuns, is_trained, own_settings, team_again
from baton.compose.known import measure_gold, task_behind
from baton.errors import BatonError, UsageError, nearest
from baton.measure.figure import Figure, not_measured
from baton.measure.meaning import Embed, Meaning
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import find_metric
from baton.measure.report.document import Document, ReportTable, as_html, as_markdown, document
from baton.measure.report.report import MeasureReport, measure
from baton.measure.safety.summary import safety_report
from baton.team.forks import Rerun, rerun_of
from baton.trace.formats import read_all
from baton.trace.formats.recognition import opened_name
from baton.trace.gold import Gold
from baton.trace.provenance import Labels
from baton.trace.trace import Trace, drawn, part_of_training, repeats
from baton.view.terminal.fitting import Line, table_lines
from baton.view.terminal.screen import emit, room
from baton.view.text import count, printable

_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton measure runs/sum\n"
        "  baton measure runs/team --single runs/alone --best-of runs/samples --md\n"
        "  baton measure runs/mail --safety --consequential send_money --html > report.html"
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files that hold traces")
    add_repeated(parser, "--trace", "ID", "only this one")
    add_repeated(parser, "--metric", "M", "a metric of your own as well, by name or module:attr")
    parser.add_argument(
        "--embed",
        metavar="F",
        help="compare what texts mean by this function of texts (module:attr) that gives a vector for each",
    )
    parser.add_argument(
        "--gold",
        metavar="PATH",
        help=f"what is known of the instances, as JSON: {', '.join(MEASURE_DATA)}; or that by trace id",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything, as JSON")
    form.add_argument("--md", action="store_true", help="tables in Markdown")
    form.add_argument("--html", action="store_true", help="one page that needs nothing else")
    add_repeated(parser, "--single", "PATH", "traces of a single agent on the same tasks")
    best_of = "single-agent samples, several a task: as many as the team's tokens buy, the best counts"
    add_repeated(parser, "--best-of", "PATH", best_of)
    parser.add_argument(
        "--replay",
        action="store_true",
        help="run traces again for what only that can tell: value of messages, stops",
    )
    parser.add_argument(
        "--safety", action="store_true",
        help="follow taint from untrusted tool results, and run again without their words",
    )  # fmt: skip
    add_repeated(parser, "--consequential", "TOOL", "a tool that acts on the world")
    add_repeated(parser, "--untrusted", "TOOL", "a tool whose results strangers wrote")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    if (args.consequential or args.untrusted) and not args.safety:
        raise UsageError("--consequential and --untrusted are for --safety. Type: --safety")
    metrics = [find_metric(name) for name in args.metric]
    meaning = Meaning(embed=None if args.embed is None else _embedding(args.embed))
    given = read_gold(args.gold, MEASURE_DATA) if args.gold is not None else {}
    paths: dict[int, str] = {}
    team = _readings(args.paths, trust=args.trust, meaning=meaning, given=given, found_at=paths)
    if not team:
        raise UsageError(f"{', '.join(args.paths)}: no trace in there.")
    if args.gold is not None:
        check_gold_keys(args.gold, given, {reading.trace.trace_id for reading in team})
    team = _chosen(team, args.trace)
    _tell_parts(team)
    _check_tools(args, team)
    rerun = _Reruns(paths, trust=args.trust).of
    safety = None
    if args.safety:
        ordered = sorted(team, key=lambda reading: reading.trace.trace_id)
        safety = safety_report(ordered, lambda trace: _labels(trace, args), rerun)
    report = measure(
        team,
        single=_readings(args.single, trust=args.trust),
        samples=_readings(args.best_of, trust=args.trust),
        rerun=(lambda reading: rerun(reading.trace)) if args.replay else None,
        safety=safety,
        metrics=metrics,
    )
    _print(report, args)
    return 0


def _embedding(name: str) -> Embed:
    """A function of texts by module:attr. It is typed and not read from a trace, so it may be imported."""
    if not registry.is_reference(name):
        raise UsageError(f"--embed {name}: expected module:attr, such as --embed my_package:embed.")
    found = registry.imported("embedding", name)
    if not callable(found):
        raise UsageError(
            f"--embed {name} is a {type(found).__name__}; expected a function of a list of texts that gives a vector "
            "for each."
        )
    embed: Embed = found
    return embed


def _readings(
    paths: Sequence[str],
    *,
    trust: bool,
    meaning: Meaning | None = None,
    given: GoldTables | None = None,
    found_at: dict[int, str] | None = None,
) -> list[MeasuredTrace]:
    """Every trace once. Two runs may well have the same name; the same trace given twice is no second measurement.

    Where each was, by its `id()`, is put into `found_at`.
    """
    found: dict[str, list[Trace]] = {}
    twice: dict[str, None] = {}
    for path in paths:
        for trace in read_all(opened_name(path)):
            known = found.setdefault(trace.trace_id, [])
            if trace in known:
                twice[trace.trace_id] = None
            else:
                known.append(trace)
                if found_at is not None:
                    found_at[id(trace)] = path
    if twice:
        names = ", ".join([*map(printable, list(twice)[:_NAMED]), *(["…"] if len(twice) > _NAMED else [])])
        remark(f"baton measure: given more than once and counted once: {names}")
    every = [trace for traces in found.values() for trace in traces]
    counted = drawn(every)
    if again := len(repeats(every)):
        remark(
            f"baton measure: {count(again, 'repeat')} left out: the same draws as another trace's, by the same seed, "
            "are no second rollout."
        )
    if forks := len(every) - len(counted) - again:
        remark(
            f"baton measure: {count(forks, 'fork')} left out: a fork is no rollout of its own. Give forks alone to "
            "measure them.",
        )
    return [
        MeasuredTrace(trace, _known(trace, gold_of(given or {}, trace.trace_id), trust=trust), meaning)
        for trace in counted
    ]


def _tell_parts(team: Sequence[MeasuredTrace]) -> None:
    """Say so where rollouts of training and measurements of it are counted together."""
    parts = Counter(part_of_training(reading.trace) or "of no training run" for reading in team)
    if len(parts) > 1:
        told = ", ".join(f"{num:,} {part}" for part, num in parts.items())
        remark(f"baton measure: counted together: {told}. To measure some alone, type: --trace ID")


def _known(trace: Trace, given: dict[str, Any], *, trust: bool) -> Gold | None:
    """What was given of an instance; the rest from its task. A right answer that was given goes before the task's."""
    found = measure_gold(trace, trust=trust)
    if not given:
        return found
    known = structs.replace(Gold() if found is None else found, **given)
    return structs.replace(known, verify=None) if "answer" in given else known


def _chosen(team: list[MeasuredTrace], ids: Sequence[str]) -> list[MeasuredTrace]:
    known = [reading.trace.trace_id for reading in team]
    for name in ids:
        if name not in known:
            raise UsageError(f"there is no trace {name!r} in there. {nearest(name, known)}")
    return [reading for reading in team if not ids or reading.trace.trace_id in ids]


def _check_tools(args: argparse.Namespace, team: Iterable[MeasuredTrace]) -> None:
    """A tool that no trace calls is a typing mistake, and would pass for a clean bill."""
    known = {e.tool for reading in team for e in reading.trace.events if e.tool is not None}
    for name in (*args.consequential, *args.untrusted):
        if name not in known:
            hint = nearest(name, known) if known else "They call no tools."
            raise UsageError(f"no trace calls a tool {name!r}. {hint}")


def _print(report: MeasureReport, args: argparse.Namespace) -> None:
    if args.json:
        print_json(report)
        return
    found = _printable(document(report))
    if args.md:
        sys.stdout.write(as_markdown(found))
    elif args.html:
        sys.stdout.write(as_html(found))
    else:
        emit(_lines(found))


def _printable(found: Document) -> Document:
    """Names come from traces: nothing in them may take effect, in whatever form they are shown."""
    return structs.replace(
        found,
        tables=tuple(
            structs.replace(table, rows=tuple(tuple(map(printable, row)) for row in table.rows))
            for table in found.tables
        ),
        notes=tuple(map(printable, found.notes)),
    )


def _lines(found: Document) -> Iterable[Line]:
    yield [(found.title, "bold")]
    for note in found.notes:
        yield [(f"note: {note}", "yellow")]
    for table in found.tables:
        yield []
        yield [(table.title, "bold")]
        yield from _table(table)


def _table(table: ReportTable) -> list[Line]:
    """Rows in columns; what is not measured is pale."""
    rows = [table.head, *table.rows]
    styles = ["bold dim", *("dim" if "not measured" in row[1] else "" for row in table.rows)]
    return table_lines(rows, room(), styles=styles)


def _labels(trace: Trace, args: argparse.Namespace) -> Labels:
    """As typed, and as the tools of the trace's own task are declared."""
    consequential = {*args.consequential}
    if behind := task_behind(trace, trust=args.trust):
        task, instance = behind
        consequential |= {tool.name for tool in task.tools(instance) if tool.consequential}
    return Labels(consequential=frozenset(consequential), untrusted=frozenset(args.untrusted))


class _Reruns:
    """The teams that made traces, to run them again; a training run's is opened once."""

    def __init__(self, paths: Mapping[int, str], *, trust: bool) -> None:
        self._paths = paths
        self._trust = trust
        self._trained = TrainedRuns(trust=trust)

    def of(self, trace: Trace) -> Rerun | Figure:
        """The team that made a trace, or why there is none."""
        try:
            if is_trained(trace):
                return rerun_of(*self._trained.team(self._paths.get(id(trace)), trace))
            if own_settings(trace) is None:
                why = "the trace was not made by `baton run`, so its team cannot be set up from here"
                return not_measured(why)
            team, assignment, _ = team_again(trace, trust=self._trust)
            return rerun_of(team, assignment)
        except BatonError as error:
            return not_measured(str(error))
