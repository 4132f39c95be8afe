"""Credit of agents through the team runtime: three workers vote, the root takes the majority of those it has.

Exact: the worth of a coalition is the chance that its majority is right, so Shapley values and differences of the
expected return follow by enumeration. Estimates look at one rollout's luck, and average to them.
"""

from __future__ import annotations

import asyncio
from itertools import product

from baton.credit import ESTIMATORS
from baton.credit.estimators.shapley_values import exact
from baton.engine.scripted import ScriptedEngine
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.intervene import BarAgent
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.outcome import team_return
from baton.trace.trace import Trace
from credit_bench.figures import Figure, judge

__all__ = ["voter_figures"]

_CHANCES = (0.9, 0.7, 0.6)
_GAME = "voters, teams"


def _script(request: Request) -> str:
    if request.role == "worker":
        right = uniform(request.sampling.key or "") < _CHANCES[int(request.agent[-1]) - 1]
        return f"return {int(right)}"
    if not any(entry.speaker == "assistant" for entry in request.entries):
        return "\n".join([*("spawn worker: vote" for _ in _CHANCES), "wait all"])
    said = [entry.text[-1] for entry in request.entries if "returned:" in entry.text]
    return f"stop {int(2 * said.count('1') > len(said))}"


def _worth(mask: int) -> float:
    """The chance that the majority of a coalition is right; nobody is never right."""
    members = [i for i in range(len(_CHANCES)) if mask >> i & 1]
    total = 0.0
    for votes in product((0, 1), repeat=len(members)):
        chance = 1.0
        for i, vote in zip(members, votes, strict=True):
            chance *= _CHANCES[i] if vote else 1 - _CHANCES[i]
        total += chance * (2 * sum(votes) > len(members))
    return total


def voter_figures(num_samples: int = 10_000) -> list[Figure]:
    """Shapley values and differences of every worker."""
    return asyncio.run(_measured(-(-num_samples // len(_CHANCES))))


async def _measured(num_traces: int) -> list[Figure]:
    engine, topology = ScriptedEngine("voters", _script), make_topology("centralized")
    assignment = Assignment(task_id="vote", prompt="is it so?", verify=float)
    traces = [
        await run(Team.of(topology, engine, seed=seed), assignment, trace_id=f"vote-{seed}")
        for seed in range(num_traces)
    ]
    names = [f"worker{i + 1}" for i in range(len(_CHANCES))]
    everyone = (1 << len(names)) - 1
    shares = dict(zip(names, exact(_worth, [-1] * len(names)).values, strict=True))
    gaps = {name: _worth(everyone) - _worth(everyone ^ 1 << i) for i, name in enumerate(names)}

    forks = Forks(Team.of(topology, engine), assignment)
    credits = await ESTIMATORS["shapley"].function(traces, runner=forks)
    figures = [
        judge(_GAME, "shapley", credits, [shares] * num_traces, unbiased=True, tokens=forks.cost.tokens)
    ]
    again = Forks(Team.of(topology, engine), assignment)
    without: dict[tuple[str, str], float] = {}
    for trace in traces:
        for name in names:
            made = await again.fork(trace, [BarAgent(name)])
            without[trace.trace_id, name] = team_return(made.trace)

    def barred(trace: Trace, agent: str) -> float:
        return without.get((trace.trace_id, agent), 0.0)

    credits = ESTIMATORS["difference"](traces, without=barred)
    title = "difference, from forks"
    figures.append(
        judge(
            _GAME,
            "difference",
            credits,
            [gaps] * num_traces,
            title=title,
            unbiased=True,
            tokens=again.cost.tokens,
        )
    )
    return figures
