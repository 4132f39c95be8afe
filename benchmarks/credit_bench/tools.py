"""Credit of tool calls through the team runtime: a worker looks in one of two places and tells what it found.

The tool's answer is the reward on the call; luck turns the outcome now and then. Exact: the expected return after
looking there, less its mean over both places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from baton.credit import ESTIMATORS
from baton.engine.scripted import ScriptedEngine
from baton.team.clock import uniform
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.records import Reward
from baton.trace.trace import Trace
from credit_bench.figures import Figure, judge

__all__ = ["tool_figures"]

_PLACES = ('call look {"place": "near"}', 'call look {"place": "far"}')
_NEAR, _SLIP = 0.6, 0.2
_WORTH = (1 - _SLIP, _SLIP)
"""Of having looked near, and far."""
_VALUES = {
    "coma": {"q": lambda _, option: _WORTH[_PLACES.index(option)]},
}
_TITLES = {"coma": "coma, exact critic"}


@tool(pure=True)
def look(place: str) -> str:
    """Look for it somewhere."""
    return str(int(place == "near"))


def _script(request: Request) -> str | Answer:
    turn = sum(entry.speaker == "assistant" for entry in request.entries)
    if request.role != "worker":
        return ("spawn worker: look\nwait all", f"stop {request.entries[-1].text[-1]}")[turn]
    point = uniform(request.sampling.key or "")
    if turn == 0:
        choice = int(point >= _NEAR)
        chances = (_NEAR, 1 - _NEAR)
        return Answer(text=_PLACES[choice], policy="looks", choice=choice, option_propensities=chances)
    found = int(request.entries[-1].text[-1])
    return f"return {found if point >= _SLIP else 1 - found}"


def tool_figures(num_samples: int = 2000, group_size: int = 20) -> list[Figure]:
    """Every estimator on tool calls; the team's return as the credit of each."""
    return asyncio.run(_measured(num_samples // group_size, group_size))


async def _measured(num_groups: int, group_size: int) -> list[Figure]:
    topology, engine = make_topology("centralized", tools=("look",)), ScriptedEngine("looks", _script)
    assignment = Assignment(
        task_id="look",
        prompt="where is it?",
        verify=float,
        options=lambda me: _PLACES if me.role.name == "worker" and me.turns == 1 else None,
    )
    groups: list[list[Trace]] = []
    for group in range(num_groups):
        groups.append([])
        for seed in range(group * group_size, (group + 1) * group_size):
            team = Team.of(topology, engine, seed=seed, tools=Registry((look,)))
            groups[-1].append(_scored(await run(team, assignment, trace_id=f"look-{seed}")))
    truths = [_truth(trace) for group in groups for trace in group]
    figures = []
    for name in ("tool-group", "siblings", "coma"):
        unit = {"unit": "tool_call"} if len(ESTIMATORS[name].units) > 1 else {}
        credits = [
            mine for group in groups for mine in ESTIMATORS[name](group, **unit, **_VALUES.get(name, {}))
        ]
        figures.append(
            judge(
                "looking, teams",
                name,
                credits,
                truths,
                title=_TITLES.get(name),
                unbiased=name == "coma",
                group_size=group_size,
            )
        )
    return figures


def _scored(trace: Trace) -> Trace:
    """With the tool's answer as the reward on its call."""
    call = next(event for event in trace.events if event.type == "tool_call")
    value = float(call.choice == 0)
    return trace.with_records(
        rewards=[Reward(family="tool", unit="tool_call", target=call.id, value=value, name="found")]
    )


def _truth(trace: Trace) -> Mapping[str, float]:
    call = next(event for event in trace.events if event.type == "tool_call")
    mean = _NEAR * _WORTH[0] + (1 - _NEAR) * _WORTH[1]
    return {call.id: _WORTH[call.choice or 0] - mean}
