"""Telescoped credit of stops on a game whose exact advantages are known: the audit's measurement, again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from math import fsum

import numpy as np
import pytest

from baton.credit.estimators.telescope import telescope
from baton.engine.scripted import ScriptedEngine
from baton.games.game import State
from baton.games.library import make_game
from baton.games.on_team import read_state
from baton.games.solve import solve
from baton.tasks.game_task import GameTask
from baton.team.running import run
from baton.team.team import Team
from baton.trace.trace import Trace

GAME = make_game("parallel-pandora", {"num_boxes": 2})


def policy(state: State) -> Mapping[str, float]:
    """Half the time the best option, else any."""
    options = GAME.options(state)
    best = _solution().best(state)
    return {option: 0.5 / len(options) + 0.5 * (option == best) for option in options}


@cache
def _solution():  # type: ignore[no-untyped-def]  # only its best options are asked for
    return solve(GAME)


@cache
def value(state: State) -> float:
    """Of the policy, by plain recursion over the game."""
    if not GAME.options(state):
        return 0.0
    return fsum(p * worth(state, option) for option, p in policy(state).items())


def worth(state: State, option: str) -> float:
    return fsum(p * (reward + value(after)) for p, after, reward in GAME.step(state, option))


def groups(num: int) -> list[list[Trace]]:
    task = GameTask(GAME)
    engine = ScriptedEngine("half", task.script_of(policy, "half"))

    async def played(number: int) -> list[Trace]:
        assignment = task.assignment(task.instance(number, "train"))
        teams = [Team.of(task.topology(), engine, seed=8 * number + k) for k in range(8)]
        return [await run(team, assignment, trace_id=f"{number}-{k}") for k, team in enumerate(teams)]

    return [asyncio.run(played(number)) for number in range(num)]


@pytest.mark.slow
def test_credit_of_stops_goes_with_their_exact_advantage() -> None:
    found: dict[str, list[tuple[float, float]]] = {"likeness": [], "prefix": []}
    for group in groups(60):
        for compare, pairs in found.items():
            credits = telescope(group, compare=compare)  # type: ignore[arg-type]
            for trace, mine in zip(group, credits, strict=True):
                for credit in mine:
                    event = trace.event(credit.target)
                    if event.decision != "stop" or event.options is None or event.choice is None:
                        continue
                    state, option = read_state(event.extra["step"]["state"]), event.options[event.choice]
                    pairs.append((worth(state, option) - value(state), credit.value))
    slopes = {}
    for compare, pairs in found.items():
        x, y = np.array(pairs).T
        slopes[compare] = float(x @ y / (x @ x))
    assert slopes["prefix"] < 0.25  # what the audit saw: .12 +- .05
    assert slopes["likeness"] == pytest.approx(1.0, abs=0.3)
