"""Games played on teams by a policy on states, with the runner that forks them."""

from __future__ import annotations

import asyncio
from typing import Any

from baton.engine.scripted import ScriptedEngine
from baton.games.game import Policy
from baton.games.library import make_game
from baton.games.reference import reference
from baton.tasks.game_task import GameTask
from baton.team.forks import Forks
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.trace.trace import Trace


def play(name: str, num: int, policy: Policy | None = None, **team: Any) -> tuple[list[Trace], Forks]:
    """Rollouts of as many instances; at random where no policy is given."""
    task = GameTask(make_game(name, {}))
    script = task.script_of(policy or reference("random", task.game, None), "logged")
    engine = ScriptedEngine("logged", script)
    traces, given = [], {}
    for k in range(num):
        assignment: Assignment = task.assignment(task.instance(k, "train"))
        given[f"t{k:03}"] = assignment
        made = Team.of(task.topology(), engine, seed=k, **team)
        traces.append(asyncio.run(run(made, assignment, trace_id=f"t{k:03}")))
    forks = Forks(
        Team.of(task.topology(), engine, **team), lambda trace: given[trace.trace_id.partition("~")[0]]
    )
    return traces, forks
