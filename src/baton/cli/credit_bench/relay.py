"""Message credit through the team runtime: a worker's word is passed on to a second, whose word is the answer.

Enumerable, with luck after the first message, and real tokens to pay for.
"""

from __future__ import annotations

import asyncio
from typing import Any

from baton.cli.credit_bench.figures import Figure, score
from baton.credit import ESTIMATORS
from baton.credit.forking import Forks
from baton.engine.scripted import ScriptedEngine
from baton.team.policy import Answer, Request
from baton.team.randomness import uniform
from baton.team.running import run
from baton.team.setup import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.trace import Trace

__all__ = ["relay_figures"]

_FIRST, _SECOND = 0.6, {"1": 0.8, "0": 0.3}
_VARIANTS: dict[str, dict[str, Any]] = {
    "message-replay, 4 x 1": {"num_alternatives": 4},
    "message-replay, 4 x 4": {"num_alternatives": 4, "num_continuations": 4},
    "message-replay, 8 x 8": {"num_alternatives": 8, "num_continuations": 8},
    "message-replay on the edge, 4 x 4": {"num_alternatives": 4, "num_continuations": 4, "level": "edge"},
    "message-replay, 4 x 4, one in four": {
        "num_alternatives": 4,
        "num_continuations": 4,
        "replay_probability": 0.25,
    },
}


def _script(request: Request) -> str | Answer:
    if request.role == "worker":
        task = request.entries[-1].text[-1]
        p = _FIRST if task == "?" else _SECOND[task]
        choice = int(uniform(request.sampling.key or "") >= p)
        text = ("return 1", "return 0")[choice]
        return Answer(text=text, policy="relay", choice=choice, option_propensities=(p, 1 - p))
    turns = sum(entry.speaker == "assistant" for entry in request.entries)
    last = request.entries[-1].text[-1]
    return ("spawn worker: ?\nwait all", f"spawn worker: {last}\nwait all", f"stop {last}")[turns]


def relay_figures(num_traces: int = 250) -> list[Figure]:
    """Every variant of replay, and the team's return as the credit of each message."""
    return asyncio.run(_measured(num_traces))


async def _measured(num_traces: int) -> list[Figure]:
    team = Team.of(make_topology("centralized"), ScriptedEngine("relay", _script))
    assignment = Assignment(task_id="relay", prompt="pass it on", verify=float)
    traces = []
    for seed in range(num_traces):
        seeded = Team.of(team.topology, ScriptedEngine("relay", _script), seed=seed)
        traces.append(await run(seeded, assignment, trace_id=f"relay-{seed}"))
    truth = [_effect(trace, event) for trace in traces for event in ("worker1#1", "worker2#1")]
    figures = []
    for name, settings in _VARIANTS.items():
        forks = Forks(team, assignment)
        credits = await ESTIMATORS["message-replay"].function(traces, runner=forks, **settings)
        flat = [credit for mine in credits for credit in mine]
        figures.append(
            score(
                "relay, teams",
                "message",
                name,
                [credit.value for credit in flat],
                truth,
                unbiased=True,
                stderr=[float("nan") if c.stderr is None else c.stderr for c in flat],
                tokens=forks.cost.tokens / len(flat),
            )
        )
    shared = [credit.value for mine in ESTIMATORS["mean"](traces) for credit in mine for _ in range(2)]
    figures.append(score("relay, teams", "message", "mean (team's return)", shared, truth, unbiased=False))
    return figures


def _effect(trace: Trace, event: str) -> float:
    """Exact total effect of a message."""
    first = trace.text(trace.event("worker1#1").content_ref) or ""
    if event == "worker1#1":
        return _SECOND[first] - (_FIRST * _SECOND["1"] + (1 - _FIRST) * _SECOND["0"])
    return float(trace.text(trace.event(event).content_ref) or 0) - _SECOND[first]
