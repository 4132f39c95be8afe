"""Games on the team runtime, from the command line: play into traces, and the ledger out of them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from baton.cli.run import parse_policies, run_into
from baton.compose.build import Settings, make_team, task_of
from baton.compose.stores import resume_command, store_to_write
from baton.errors import UsageError
from baton.games.game import Game
from baton.games.game_trace import PREFIX, Played, played, regret_of_trace
from baton.games.ledger import GameRegret, SampledLedger, summarise
from baton.games.solve import solve
from baton.tasks.game_task import GameTask
from baton.team.running import Run, header_of
from baton.trace.formats import read_all
from baton.trace.trace import Trace, meta_table


def play_on_team(args: argparse.Namespace, parameters: Mapping[str, str]) -> list[Played]:
    """Play by a team, seed by seed; into a store where one is named."""
    out = None if args.out is None else store_to_write(args.out)
    plays: list[Played] = []
    task: GameTask | None = None
    for seed in range(args.seed, args.seed + args.episodes):
        settings = Settings(
            task=f"{PREFIX}{args.name}",
            topology="centralized",
            policies=parse_policies([args.policy]),
            task_settings=dict(parameters),
            seed=seed,
        )
        if task is None:  # one for all seeds: what it has worked out is kept
            made = task_of(settings)
            assert isinstance(made, GameTask)
            task = made
        trace = _in_memory(settings, task) if out is None else run_into(out, settings, task)
        if trace is None:
            raise KeyboardInterrupt
        plays.append(played(trace, task.game))
        last = trace
    if out is not None and not args.json:
        print(
            f"trace    {last.trace_id} in {out}" if len(plays) == 1 else f"traces   {len(plays):,} in {out}"
        )
    return plays


def _in_memory(settings: Settings, task: GameTask) -> Trace:
    team, assignment = make_team(settings, task)
    return asyncio.run(Run(team, assignment, header_of(team, assignment)).go())


def ledgers_of_traces(path: Path) -> dict[str, dict[str, GameRegret | SampledLedger]]:
    """Game -> who played it -> the ledger of the traces in a file or a run's directory."""
    solution_of = lru_cache(16)(solve)
    found: dict[tuple[str, str], list[GameRegret]] = {}
    for trace in read_all(path):
        if trace.finished:
            ledger = regret_of_trace(trace, solution_of)
            policy = str(meta_table(trace.header, "run", "policies").get("orchestrator", "unknown"))
            found.setdefault((_label(played(trace).game), policy), []).append(ledger)
    if not found:
        raise UsageError(f"{path} holds no finished trace. Type: {resume_command(str(path))}")
    ledgers: dict[str, dict[str, GameRegret | SampledLedger]] = {}
    for (game, policy), each in found.items():
        ledgers.setdefault(game, {})[policy] = each[0] if len(each) == 1 else summarise(each)
    return ledgers


def _label(game: Game) -> str:
    """Its name and whatever is not as usual."""
    given, usual = msgspec.to_builtins(game), msgspec.to_builtins(type(game)())
    changed = [
        f"{key}={msgspec.json.encode(given[key]).decode()}" for key in given if given[key] != usual[key]
    ]
    return " ".join([game.name, *changed])
