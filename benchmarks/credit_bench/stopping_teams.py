"""Stop credit through the team runtime: teams play the stopping chain, and are run on past where they stopped.

Exact: -(1-p) D for a stop and p D for going on, D the difference of the two at that state by dynamic programming.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits
from baton.credit.estimators.stop_value import decisions_of, stop_chance, stopped
from baton.engine.scripted import ScriptedEngine
from baton.games.game import State
from baton.games.library.stopping_chain import StoppingChain
from baton.games.on_team import read_state
from baton.games.solve import Solution, solve
from baton.tasks.game_task import GameTask
from baton.team.forks import Forks
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.trace.records import Event
from baton.trace.trace import Trace
from credit_bench.figures import Figure, judge

__all__ = ["stop_groups", "stop_team_figures"]

_STOP, _WAIT = "stop draft", "wait any"
_STOPS = 0.2
"""The chance of a stop in the log."""


def stop_team_figures(num_groups: int = 5, group_size: int = 100) -> list[Figure]:
    """One row: every decision of the root that could have gone either way."""
    groups = stop_groups(num_groups, group_size)
    return [
        judge(
            "stopping-chain, teams",
            "stop-value",
            [mine for credits, _, _ in groups for mine in credits],
            [truth for _, truths, _ in groups for truth in truths],
            title=f"stop-value, {group_size} rollouts",
            tokens=sum(tokens for _, _, tokens in groups),
            group_size=group_size,
        )
    ]


Told = tuple[Credits, list[Mapping[str, float]], int]
"""The credits of a group, what they are to hold, and the tokens that were run again."""


def stop_groups(num_groups: int, group_size: int) -> list[Told]:
    """Groups of rollouts with their stop credit."""
    return asyncio.run(_groups(num_groups, group_size))


async def _groups(num_groups: int, group_size: int) -> list[Told]:
    game = StoppingChain()
    task, solution = GameTask(game), solve(game)

    def policy(state: State) -> dict[str, float]:
        return {_STOP: _STOPS, _WAIT: 1 - _STOPS} if len(game.options(state)) > 1 else {_STOP: 1.0}

    engine = ScriptedEngine("logged", task.script_of(policy, "logged"))
    found: list[Told] = []
    for group in range(num_groups):
        traces, assignments = [], {}
        for k in range(group * group_size, (group + 1) * group_size):
            assignment: Assignment = task.assignment(task.instance(k, "train"))
            team = Team.of(task.topology(), engine, seed=k)
            traces.append(await run(team, assignment, trace_id=f"stop-{k}"))
            assignments[f"stop-{k}"] = assignment
        forks = Forks(Team.of(task.topology(), engine), lambda trace, of=assignments: of[_name(trace)])  # type: ignore[misc]  # a default, to bind it now
        credits = await ESTIMATORS["stop-value"].function(
            traces, runner=forks, features=_features, score_known=True
        )
        found.append((credits, [_truth(trace, solution) for trace in traces], forks.cost.tokens))
    return found


def _name(trace: Trace) -> str:
    """Of the rollout; that of a fork of it begins with the same."""
    return trace.trace_id.partition("~")[0]


def _features(trace: Trace, event: Event) -> list[float]:
    _, good, out = read_state(event.extra["step"]["state"])
    return [float(good), float(out), float(good) ** 2]


def _truth(trace: Trace, solution: Solution) -> Mapping[str, float]:
    found = {}
    for event in decisions_of(trace):
        if len(event.options or ()) > 1:
            q = solution.q(read_state(event.extra["step"]["state"]))
            p, gap = stop_chance(event), q[_WAIT] - q[_STOP]
            found[event.id] = -(1 - p) * gap if stopped(event) else p * gap
    return found
