"""`baton view PATH`: traces and training runs in the browser, from this machine alone."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shlex
from collections.abc import Coroutine, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from baton.cli import add_policy, add_trust
from baton.cli.price_file import add_prices, prices_given
from baton.cli.printing import say
from baton.compose.run_settings import parse_policies
from baton.compose.started_runs import StartedRuns
from baton.credit.project import project
from baton.errors import UsageError
from baton.games.game import Game, State
from baton.games.game_trace import played, regret_of_trace
from baton.games.on_team import steps_of
from baton.games.solve import Solution, solve
from baton.measure.prices import PriceTable
from baton.registry import TRUST
from baton.team.action import Stop
from baton.team.forking import Fork
from baton.team.forks import fork
from baton.team.intervene import Drop, Force, Intervention, Replace
from baton.trace.formats.recognition import detect
from baton.trace.outcome import final_event
from baton.trace.records import Event, Floats
from baton.trace.trace import End, Record, Trace
from baton.view.index.opening import cache_folder
from baton.view.terminal.live import hush
from baton.view.web.attached import Attached, Change, ForkMade, ForkWatch, LostChoice, RegretLedger
from baton.view.web.places import find_places
from baton.view.web.server import listen, make_app, serve
from baton.view.web.traces import Library

_GLANCE_SECONDS = 0.2
_ROUNDING = 1e-12  # of a solver's values: less is no loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "PATH is a file or store of traces, sealed shards, what `baton train` wrote, or a directory of these.\n"
        "The page is served to this machine alone, and nothing is sent anywhere. What is written is what you\n"
        "write on it (notes, in NAME.notes beside what they are about) and forks that you keep.\n\n"
        "examples:\n  baton view runs\n  baton view before.jsonl after.jsonl\n  baton view runs/sum --fork"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="where traces are")
    parser.add_argument("--port", type=_port, metavar="N", help="8321 or any free one; 0: any free one")
    parser.add_argument(
        "--no-key", action="store_true", help="answer everybody on this machine, not only who has the address"
    )
    parser.add_argument(
        "--fork", action="store_true", help="attach the runtime: traces can be run again with a change"
    )
    parser.add_argument(
        "--steer",
        action="store_true",
        help="runs can be started from the page, paused, spoken to and stopped",
    )
    add_prices(parser)
    add_policy(parser, "for forks and runs, another engine: P or ROLE=P")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    paths = [Path(path) for path in args.paths]
    for path in paths:
        if args.steer and not path.exists() and not path.suffix:
            path.mkdir(parents=True)
        if not path.exists():
            raise UsageError(f"there is no {path}. Type: {_make(path)}")
        if not path.is_dir():
            detect(path)  # says so if it is no trace
        elif not args.steer and not find_places([path]):
            raise UsageError(f"{path} holds no traces. Type: {_make(path)}")
    if args.steer and not paths[0].is_dir():
        raise UsageError(
            f"--steer puts new runs into a folder, and {paths[0]} is none. Give the folder first."
        )
    if args.policy and not (args.fork or args.steer):
        raise UsageError("--policy is for forks and new runs. Type: --fork or --steer as well")
    if args.trust and not args.fork:
        raise UsageError(f"{TRUST} is for forks. Type: --fork as well")
    policies = parse_policies(args.policy)
    prices = prices_given(args)
    key = None if args.no_key else secrets.token_urlsafe(18)
    command = StartedRuns(paths[0], args.policy) if args.steer else None
    given = attached(forks=args.fork, policies=policies, trust=args.trust, prices=prices, command=command)
    app = make_app(Library(paths, cache=cache_folder()), given, key=key)
    at = listen(args.port)
    query = "" if key is None else f"?key={key}"
    say(f"Open http://127.0.0.1:{at.getsockname()[1]}/{query} in a browser. Ctrl-C ends it.")
    hush(for_good=True)
    serve(app, at)
    return 0


def _make(path: Path) -> str:
    return shlex.join(["baton", "run", "shard-sum", "--out", str(path)])


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: expected 0 to 65535")
    return int(text)


def attached(
    *,
    forks: bool = False,
    policies: dict[str, str] | None = None,
    trust: bool = False,
    prices: PriceTable | None = None,
    command: StartedRuns | None = None,
) -> Attached:
    """What the viewer needs of packages it does not know."""

    def again(at: Path, trace: Trace, change: Change, watch: ForkWatch) -> ForkMade:
        return _fork(at, trace, change, watch, policies or {}, trust)

    return Attached(
        ledger=_ledger,
        advantages=_advantages,
        fork=again if forks else None,
        prices=prices or PriceTable(),
        command=command,
    )


def _regret(solution: Solution, state: State, option: str) -> float:
    lost = solution.values[state] - solution.q(state)[option]
    return lost if lost > _ROUNDING else 0.0


@lru_cache(16)
def _solution(game: Game) -> Solution:
    return solve(game)


def _ledger(trace: Trace) -> RegretLedger:
    play = played(trace)
    found = regret_of_trace(trace, _solution)
    solution = _solution(play.game)
    events = [trace.events[step.event].id for step in steps_of(trace.events)]
    losses = tuple(
        LostChoice(
            event=event,
            decision=play.game.decision(state),
            option=option,
            best=solution.best(state),
            regret=_regret(solution, state, option),
        )
        for event, (state, option, _) in zip(events, play.steps, strict=True)
    )
    return RegretLedger(
        game=play.game.name,
        optimum=found.optimum,
        value=found.value,
        luck=found.luck,
        parts={
            str(name): part if part > _ROUNDING else 0.0
            for name, part in (found.parts | {"invalid": found.invalid}).items()
        },
        visits={str(choice): n for choice, n in found.visits.items()} | {"invalid": found.num_invalid},
        charge=found.charge,
        losses=losses,
    )


def _advantages(trace: Trace, unit: str, estimator: str) -> dict[str, Floats]:
    return project(trace, [one for one in trace.credits if one.unit == unit and one.estimator == estimator])


def _fork(
    at: Path, trace: Trace, change: Change, watch: ForkWatch, policies: dict[str, str], trust: bool
) -> ForkMade:
    from baton.compose.again import team_again  # takes a while, and few look for forks

    team, assignment, _ = team_again(trace, policies, path=str(at), trust=trust)
    watch.check()
    making = fork(trace, team, assignment, [_intervention(change)], journal=_Counted(watch))
    made = asyncio.run(_until_cancelled(making, watch))
    usage = made.usage
    return ForkMade(
        trace=made.trace,
        calls_run=usage.calls_run,
        calls_reused=usage.calls_reused,
        tokens_run=usage.tokens_run,
        estimated_run=usage.estimated_run,
        tokens_reused=usage.tokens_reused,
        invalidated=made.invalidated,
        note=_played_on(made.trace, change),
    )


async def _until_cancelled(making: Coroutine[Any, Any, Fork], watch: ForkWatch) -> Fork:
    task = asyncio.ensure_future(making)
    while not (await asyncio.wait([task], timeout=_GLANCE_SECONDS))[0]:
        if watch.cancelled.is_set():
            task.cancel()
            await asyncio.wait([task])
            watch.check()
    return task.result()


class _Counted:
    """The journal of a fork whose records are kept by nobody but it: what is counted is how far it is."""

    def __init__(self, watch: ForkWatch) -> None:
        self._watch = watch
        self._kept: list[bytes] = []

    def extend(self, records: Iterable[Record]) -> None:
        self._watch.events += sum(isinstance(each, Event) for each in records)

    def commit(self) -> None:
        """Nothing is on its way anywhere."""

    def end(self, end: End) -> None:
        """The fork has its own end."""

    def keep(self, body: bytes) -> None:
        self._kept.append(body)

    def kept(self) -> list[bytes]:
        return self._kept


def _played_on(trace: Trace, change: Change) -> str:
    """Where a team was to stop and did not: what it can say there."""
    if change.do != "stop":
        return ""
    last, there = final_event(trace), trace.position.get(change.at)
    if last is not None and last.id == change.at:
        return ""
    options = None if there is None else trace.events[there].options
    listed = f" Its options are: {', '.join(options[:12])}." if options else ""
    return f"The team played on: {change.text!r} is no answer that ends it there.{listed}"


def _intervention(change: Change) -> Intervention:
    match change.do:
        case "replace":
            return Replace(change.at, change.text)
        case "drop":
            return Drop(change.at)
        case "stop":
            return Force(change.at, Stop(change.text))
