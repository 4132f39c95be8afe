"""Small teams whose policies draw by key and whose values can be enumerated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from baton.engine.scripted import ScriptedEngine
from baton.team.clock import uniform
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.trace import Trace

P_RIGHT = (0.9, 0.7, 0.6)


def turn_of(request: Request) -> int:
    return sum(entry.speaker == "assistant" for entry in request.entries)


def draw(request: Request, options: tuple[str, ...], chances: tuple[float, ...]) -> Answer:
    point = uniform(request.sampling.key or "")
    choice = 0
    while choice < len(options) - 1 and point >= sum(chances[: choice + 1]):
        choice += 1
    return Answer(text=options[choice], policy="draws", choice=choice, option_propensities=chances)


def voters(seed: int, chances: tuple[float, ...] = P_RIGHT) -> tuple[Team, Assignment]:
    """Workers say 1 (right) with their own chance; the orchestrator stops with the majority."""

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            p = chances[int(request.agent[-1]) - 1]
            return draw(request, ("return 1", "return 0"), (p, 1 - p))
        if turn_of(request) == 0:
            return "\n".join([*("spawn worker: vote" for _ in chances), "wait all"])
        said = [e.text[-1] for e in request.entries if "returned:" in e.text]
        return f"stop {int(2 * said.count('1') > len(said))}"

    return team_of(script, seed)


def team_of(
    script: Callable[[Request], str | Answer], seed: int, topology: str = "centralized"
) -> tuple[Team, Assignment]:
    team = Team.of(make_topology(topology), ScriptedEngine("script", script), seed=seed)
    return team, Assignment(task_id="t", prompt="p", verify=lambda answer: float(answer or 0))


def traces(make: Callable[[int], tuple[Team, Assignment]], num: int) -> list[Trace]:
    return [asyncio.run(run(*make(seed), trace_id=f"t{seed}")) for seed in range(num)]


P_FIRST, P_SECOND = 0.6, {"1": 0.8, "0": 0.3}


def relay(seed: int) -> tuple[Team, Assignment]:
    """One worker's word is passed to a second, whose word is the answer."""

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            task = request.entries[-1].text[-1]
            p = P_FIRST if task == "?" else P_SECOND[task]
            return draw(request, ("return 1", "return 0"), (p, 1 - p))
        if turn_of(request) == 0:
            return "spawn worker: ?\nwait all"
        last = request.entries[-1].text[-1]
        return f"spawn worker: {last}\nwait all" if turn_of(request) == 1 else f"stop {last}"

    return team_of(script, seed)


BASE, LIFT, LOGGED = (0.9, 0.25), (0.02, 0.3), (0.1, 0.9)


def helper_or_alone(seed: int) -> tuple[Team, Assignment]:
    """The spawn bandit as a team: difficulty is seen, a helper lifts the chance of success."""
    hard = int(uniform(f"difficulty/{seed}") < 0.5)
    luck = uniform(f"luck/{seed}")

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            return "return helped"
        if turn_of(request) == 0:
            p = LOGGED[hard]
            return draw(request, ("spawn worker: help", "stop alone"), (p, 1 - p))
        return "wait all" if turn_of(request) == 1 else "stop helped"

    team, _ = team_of(script, seed)

    def verify(answer: str) -> float:
        return float(luck < BASE[hard] + (LIFT[hard] if answer == "helped" else 0.0))

    return team, Assignment(
        task_id=f"z{hard}",
        prompt="p",
        verify=verify,
        options=lambda me: (
            ("spawn worker: help", "stop alone") if me.role.name == "orchestrator" and me.turns == 1 else None
        ),
    )


WORKER_P = {"worker1": 0.3, "worker2": 0.5, "worker3": 0.5}


def additive(seed: int) -> tuple[Team, Assignment]:
    """The answer is the sum of what workers return: worker k returns k. Marginals do not depend on the others."""

    def script(request: Request) -> str:
        if request.role == "worker":
            return f"return {request.agent[-1]}"
        if turn_of(request) == 0:
            return "spawn worker: a\nspawn worker: b\nspawn worker: c\nwait all"
        said = [e.text.rsplit(" ", 1)[-1] for e in request.entries if "returned:" in e.text]
        return f"stop {sum(int(x) for x in said if x.isdigit())}"

    return team_of(script, seed)
