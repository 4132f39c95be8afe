"""Every listed estimator that applies, on teams that play the spawn bandit, against the exact advantage.

Groups are rollouts of one instance (the same difficulty, the same luck) by the logging policy. The exact
credit of a choice is Q(z, a) - V(z). An estimator that cannot be asked for it says what it lacks.
"""

from __future__ import annotations

import asyncio
from typing import Any

from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits
from baton.engine.scripted import ScriptedEngine
from baton.errors import BatonError
from baton.games.exact_value import ExactValue
from baton.games.library.spawn_bandit import SpawnBandit
from baton.games.on_team import read_state
from baton.tasks.game_task import GameTask
from baton.team.forks import Forks
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.trace.acts import agents
from baton.trace.trace import Trace
from credit_bench.figures import Figure, judge

__all__ = ["sweep"]

_UNBIASED = frozenset({"leave-one-out", "spawn-fork", "coma"})
_AGAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "spawn-fork, 16 replicates": ("spawn-fork", {"num_replicates": 16}),
}


def sweep(num_groups: int = 40, group_size: int = 8) -> tuple[list[Figure], dict[str, str]]:
    """Figures, and for those that do not apply the reason."""
    return asyncio.run(_swept(num_groups, group_size))


async def _swept(num_groups: int, group_size: int) -> tuple[list[Figure], dict[str, str]]:
    game = SpawnBandit()
    task = GameTask(game)
    engine = ScriptedEngine("logged", task.script_of(game.logging_policy, "logged"))
    groups: list[tuple[list[Trace], Forks]] = []
    for index in range(num_groups):
        assignment: Assignment = task.assignment(task.instance(index, "train"))
        team = Team.of(task.topology(), engine)
        traces = []
        for k in range(group_size):
            seeded = Team.of(task.topology(), engine, seed=index * group_size + k)
            traces.append(await run(seeded, assignment, trace_id=f"{assignment.task_id}-{k}"))
        groups.append((traces, Forks(team, assignment)))
    figures, reasons = [], {}
    critic: dict[str, dict[str, Any]] = {
        "gae": {"value": ExactValue(game, game.logging_policy)},
        "telescope": {"value": ExactValue(game, game.logging_policy)},
        "coma": {"q": lambda prefix, option: _q(game, _step(prefix.trace)["state"], option)},
    }
    rows = {name: (name, critic.get(name, {})) for name in ESTIMATORS} | _AGAIN
    for title, (name, settings) in rows.items():
        try:
            figures.append(await _one(title, name, settings, groups, game))
        except (BatonError, TypeError) as error:
            reasons[title] = str(error)
    return figures, reasons


async def _one(
    title: str,
    name: str,
    settings: dict[str, Any],
    groups: list[tuple[list[Trace], Forks]],
    game: SpawnBandit,
) -> Figure:
    found = ESTIMATORS[name]
    runs = "runtime" in found.needs
    unit: dict[str, Any] = {"unit": "orchestrator"} if "orchestrator" in found.units[1:] else {}
    credits: Credits = []
    tokens = 0
    for traces, forks in groups:
        before = forks.cost.tokens
        if runs:
            credits += await found.function(traces, runner=forks, **unit, **settings)
        else:
            credits += found(traces, **unit, **settings)
        tokens += forks.cost.tokens - before
    return judge(
        "spawn-bandit, teams",
        name,
        credits,
        [_exact(trace, game) for traces, _ in groups for trace in traces],
        title=title + (", exact critic" if settings and not runs else ""),
        unbiased=name in _UNBIASED,
        tokens=tokens or None,  # the game itself answers: most forks run no policy
        group_size=len(groups[0][0]),
    )


def _exact(trace: Trace, game: SpawnBandit) -> dict[str, float]:
    """The exact credit of the one choice, by everything it may be credited to."""
    event = next(event for event in trace.events if "step" in event.extra)
    value = _advantage(game, event.extra["step"])
    return {
        target: value
        for target in (trace.trace_id, event.id, event.call, event.agent, agents(trace)[event.agent])
        if target is not None
    }


def _step(trace: Trace) -> dict[str, Any]:
    step: dict[str, Any] = next(event.extra["step"] for event in trace.events if "step" in event.extra)
    return step


def _q(game: SpawnBandit, state: str, option: str) -> float:
    z = int(read_state(state)[0])
    return game.base[z] + (game.lift[z] - game.cost if option.startswith("spawn") else 0.0)


def _advantage(game: SpawnBandit, step: dict[str, Any]) -> float:
    policy = game.logging_policy(read_state(step["state"]))
    mean = sum(p * _q(game, step["state"], option) for option, p in policy.items())
    return _q(game, step["state"], step["option"]) - mean
