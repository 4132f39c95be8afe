"""How fast games are solved and played, and how that grows.

python benchmarks/games.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from baton.engine.scripted import ScriptedEngine
from baton.games.joint_policy import joint_optimum
from baton.games.ledger import expected_regret
from baton.games.library import make_game
from baton.games.library.dec_tiger import TigerModel
from baton.games.play import PolicyTable
from baton.games.reference import reference
from baton.games.solve import solve
from baton.tasks.game_task import GameTask
from baton.team.protocol import Engine
from baton.team.running import run
from baton.team.team import Team, Topology
from table import machine, print_table, row

Rows = list[tuple[str, ...]]
WHERE = machine("one core used")
TARGET_SOLVE_SECONDS = 10.0
TARGET_EPISODES_PER_SECOND = 2000.0

# game -> what its size counts, and the settings by size
LADDERS: list[tuple[str, str, dict[int, dict[str, Any]]]] = [
    (
        "parallel-pandora",
        "boxes, 2 rounds of 3",
        {n: {"num_boxes": n, "num_slots": 3} for n in (2, 3, 4, 5, 6)},
    ),
    ("parallel-pandora", "boxes, 3 rounds of 2", {n: {"num_boxes": n, "num_rounds": 3} for n in (2, 4, 6)}),
    (
        "dag-schedule",
        "tasks, 2 slots",
        {n: {"durations": [1 + i % 4 for i in range(n)], "edges": []} for n in (6, 8, 10)},
    ),
    ("skill-bandit", "tasks, 3 agents", {n: {"num_tasks": n} for n in (6, 10, 14)}),
    ("silo", "agents", {n: {"num_agents": n} for n in (6, 10, 14)}),
    ("length-ladder", "steps", {n: {"length": n} for n in (10, 100, 1000)}),
]


def seconds(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The best of several runs, and what the last one gave."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def flagship() -> Rows:
    """Solve times against the target, and play through the tabular path."""
    rows: Rows = []
    for settings in ({"num_boxes": 6, "num_slots": 3}, {"num_boxes": 6, "num_rounds": 3}):
        game = make_game("parallel-pandora", settings)
        took, solution = seconds(lambda game=game: solve(game))
        what = f"flagship, 6 boxes, {'2 rounds of 3' if 'num_slots' in settings else '3 rounds of 2'}"
        target = TARGET_SOLVE_SECONDS
        rows.append(row(f"{what}: solve", f"{took:.2f} s", "target", f"{target:g} s", target / took, WHERE))
        for name in ("optimal", "random"):
            table = PolicyTable(game, reference(name, game, solution))
            took, _ = seconds(lambda table=table: [table.play(0, index) for index in range(20_000)])
            rate, target = 20_000 / took, TARGET_EPISODES_PER_SECOND
            rows.append(
                row(
                    f"{what}: {name} episodes",
                    f"{rate:,.0f}/s",
                    "target",
                    f"{target:,.0f}/s",
                    rate / target,
                    WHERE,
                )
            )
    return rows


def growth() -> Rows:
    """Each size against the one before it."""
    rows: Rows = []
    for name, unit, ladder in LADDERS:
        before: tuple[int, float] | None = None
        for size, settings in ladder.items():
            game = make_game(name, settings)
            took, solution = seconds(lambda game=game: solve(game))
            if before is not None:
                what = f"{name}: solve, {size} {unit}, {len(solution.values):,} states"
                against = f"{before[0]} {unit}"
                rows.append(
                    row(what, f"{took:.4f} s", against, f"{before[1]:.4f} s", before[1] / took, WHERE)
                )
            before = size, took
    return rows


def others() -> Rows:
    """The ledger against the solution it needs; all joint policies of Dec-Tiger."""
    game = make_game("parallel-pandora", {"num_boxes": 6, "num_rounds": 3})
    solving, solution = seconds(lambda: solve(game))
    ledger, _ = seconds(lambda: expected_regret(solution, reference("random", game)), repeats=1)
    short, _ = seconds(lambda: joint_optimum(TigerModel(), 2))
    long, _ = seconds(lambda: joint_optimum(TigerModel(), 3))
    return [
        row(
            "flagship, 6 boxes: exact ledger of random play",
            f"{ledger:.2f} s",
            "solving it",
            f"{solving:.2f} s",
            solving / ledger,
            WHERE,
        ),
        row("dec-tiger: joint optimum, h=3", f"{long:.4f} s", "h=2", f"{short:.4f} s", short / long, WHERE),
    ]


def on_a_team() -> Rows:
    """The flagship on the full team runtime (agents, calls, trace) against the table."""
    game = make_game("parallel-pandora")
    solution, task = solve(game), GameTask(game)
    rows: Rows = []
    for name in ("optimal", "random"):
        table = PolicyTable(game, reference(name, game, solution))
        engine = ScriptedEngine(name, task.script(name))
        topology = task.topology()

        async def play(engine: Engine = engine, topology: Topology = topology) -> None:
            for seed in range(500):
                team = Team.of(topology, engine, seed=seed)
                await run(team, task.assignment(task.instance(seed)))

        alone, _ = seconds(lambda table=table: [table.play(0, index) for index in range(20_000)])
        team, _ = seconds(lambda play=play: asyncio.run(play()))
        what = f"flagship, 3 boxes: {name} episodes on a team"
        rates = 500 / team, 20_000 / alone
        rows.append(
            row(
                f"{what}, 1/{rates[1] / rates[0]:.0f} of the table",
                f"{rates[0]:,.0f}/s",
                "the table",
                f"{rates[1]:,.0f}/s",
                rates[0] / rates[1],
                WHERE,
            )
        )
    return rows


if __name__ == "__main__":
    print_table([*flagship(), *growth(), *others(), *on_a_team()])
