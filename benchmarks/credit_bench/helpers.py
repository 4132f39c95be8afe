"""Spawn credit through the team runtime: the spawn bandit with a helper who works, so that forks cost tokens.

Difficulty is seen and confounds the log; each rollout's luck is its own and is shared by both branches. Groups are
rollouts of one difficulty. Exact: (1-p) tau for a spawn, -p tau for none, tau the lift of that difficulty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits
from baton.credit.estimators.spawn_options import decisions_of
from baton.engine.scripted import ScriptedEngine
from baton.games.library.spawn_bandit import SpawnBandit
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.trace import Trace
from credit_bench.figures import Figure, judge

__all__ = ["helper_figures"]

_OPTIONS = ("spawn worker: help", "stop alone")
_TASKS = ("easy", "hard")
_GAME = SpawnBandit()
_ROWS = {
    "spawn-fork": "spawn-fork",
    "spawn-combined": "spawn-combined, half of them forked",
    "spawn-doubly-robust": "spawn-doubly-robust",
}


def _script(request: Request) -> str | Answer:
    if request.role == "worker":
        return "return helped"
    turn = sum(entry.speaker == "assistant" for entry in request.entries)
    if turn:
        return "wait all" if turn == 1 else "stop helped"
    p = _GAME.logged[int("hard" in request.entries[-1].text)]
    choice = int(uniform(request.sampling.key or "") >= p)
    return Answer(text=_OPTIONS[choice], policy="logged", choice=choice, option_propensities=(p, 1 - p))


def _team(seed: int = 0) -> Team:
    return Team.of(make_topology("centralized"), ScriptedEngine("logged", _script), seed=seed)


def _assignment(seed: int) -> Assignment:
    hard, luck = int(uniform(f"difficulty/{seed}") < _GAME.chances[1]), uniform(f"luck/{seed}")
    base, lift = _GAME.base[hard], _GAME.lift[hard]
    return Assignment(
        task_id=_TASKS[hard],
        prompt=_TASKS[hard],
        verify=lambda answer: float(luck < base + (lift if answer == "helped" else 0.0)),
        options=lambda me: _OPTIONS if me.role.name == "orchestrator" and me.turns == 1 else None,
    )


def _truth(trace: Trace) -> Mapping[str, float]:
    (event,) = decisions_of(trace)
    hard = _TASKS.index(trace.header.task_id)
    p, tau = _GAME.logged[hard], _GAME.lift[hard]
    return {event.id: (1 - p) * tau if event.type == "spawn" else -p * tau}


def helper_figures(num_samples: int = 10_000, group_size: int = 50) -> list[Figure]:
    """Forks of every decision, doubly robust from the log alone, and both together with half of them forked."""
    return asyncio.run(_measured(num_samples, group_size))


async def _measured(num_traces: int, group_size: int) -> list[Figure]:
    by_task: dict[str, list[Trace]] = {}
    seeds: dict[str, int] = {}
    for seed in range(num_traces):
        trace = await run(_team(seed), _assignment(seed), trace_id=f"help-{seed}")
        by_task.setdefault(trace.header.task_id, []).append(trace)
        seeds[trace.trace_id] = seed
    groups = [
        traces[start : start + group_size]
        for traces in by_task.values()
        for start in range(0, len(traces) - group_size + 1, group_size)
    ]
    truths = [_truth(trace) for group in groups for trace in group]
    figures = []
    for name, title in _ROWS.items():
        forks = Forks(_team(), lambda trace: _assignment(seeds[trace.trace_id]))
        runs = "runtime" in ESTIMATORS[name].needs
        credits: Credits = []
        for group in groups:
            ask = ESTIMATORS[name]
            credits += await ask.function(group, runner=forks) if runs else ask(group)
        figures.append(
            judge(
                "spawn bandit with a helper, teams",
                name,
                credits,
                truths,
                title=title,
                unbiased=True,
                tokens=forks.cost.tokens if runs else None,
                group_size=group_size,
            )
        )
    return figures
