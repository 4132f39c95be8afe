"""Games on the team runtime, from the command line: play into traces, and the ledger out of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from baton.compose.run_settings import Settings, parse_policies
from baton.compose.runs import Watching, caps_for, default_id, run_into, unwatched
from baton.compose.stores import resume_command
from baton.compose.team_from_settings import Given, make_team, task_of
from baton.compose.waking import run_waking
from baton.errors import UsageError
from baton.games.game import Game
from baton.games.game_trace import PREFIX, Played, played, regret_of_trace
from baton.games.ledger import GameRegret, SampledLedger, summarise
from baton.games.solve import solve
from baton.tasks.game_task import GameTask
from baton.team.running import Run, header_of
from baton.trace.formats import read_all
from baton.trace.trace import Trace, drawn, meta_table, part_of_training


def play_on_team(
    name: str,
    policy: str,
    parameters: Mapping[str, Any],
    seeds: range,
    out: Path | None,
    watching: Watching = unwatched,
) -> tuple[list[Played], list[Trace]]:
    """Play a game by a team, seed by seed; into a store where one is named."""
    plays: list[Played] = []
    traces: list[Trace] = []
    task: GameTask | None = None
    for seed in seeds:
        settings = Settings(
            task=f"{PREFIX}{name}",
            topology="centralized",
            policies=parse_policies([policy]),
            task_settings=dict(parameters),
            seed=seed,
        )
        if task is None:  # one for all seeds: what it has worked out is kept
            made = task_of(settings)
            assert isinstance(made, GameTask)
            task = made
        team, assignment = make_team(settings, Given(task=task))
        if out is None:
            working = Run(team, assignment, header_of(team, assignment, caps=caps_for(team.limits))).go()
        else:
            trace_id = default_id(settings)
            working = run_into(out, settings, team, assignment, watching=watching, trace_id=trace_id)
        traces.append(run_waking(working))
        plays.append(played(traces[-1], task.game))
    return plays, traces


def ledgers_of_traces(
    path: Path, *, trust: bool = False, read: Callable[[int], None] = lambda _: None
) -> dict[str, dict[str, GameRegret | SampledLedger]]:
    """Game -> who played it -> the ledger of the traces in a file or a run's directory; `read` hears how far it is."""
    solution_of = lru_cache(16)(solve)
    found: dict[tuple[str, str], list[GameRegret]] = {}
    for number, trace in enumerate(drawn(list(read_all(path))), 1):
        if trace.finished:
            ledger = regret_of_trace(trace, solution_of, trust=trust)
            policy = str(meta_table(trace.header, "run", "policies").get("orchestrator", "unknown"))
            if part := part_of_training(trace):
                policy = f"{policy}, {part}"
            found.setdefault((_label(played(trace, trust=trust).game), policy), []).append(ledger)
        read(number)
    if not found:
        raise UsageError(f"{path} holds no finished trace. Type: {resume_command(str(path))}")
    ledgers: dict[str, dict[str, GameRegret | SampledLedger]] = {}
    for (game, policy), each in found.items():
        ledgers.setdefault(game, {})[policy] = each[0] if len(each) == 1 else summarise(each)
    return ledgers


def _label(game: Game) -> str:
    """A game's name, and those of its parameters that are not as usual."""
    given, usual = msgspec.to_builtins(game), msgspec.to_builtins(type(game)())
    changed = [
        f"{key}={msgspec.json.encode(given[key]).decode()}" for key in given if given[key] != usual[key]
    ]
    return " ".join([game.name, *changed])
