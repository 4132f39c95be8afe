"""Message credit through the team runtime: a worker's word is passed on to a second, whose word is the answer.

Enumerable, with luck after the first message, and real tokens to pay for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from baton.credit import ESTIMATORS
from baton.credit.estimator import Prefix
from baton.engine.scripted import ScriptedEngine
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.records import Call, Reward
from baton.trace.trace import Trace
from credit_bench.figures import Figure, judge

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


_CHEAP = ("message-replay, 4 x 1", "message-replay, 4 x 4, one in four")
_MANY = 400


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
    """Every variant of replay, and estimators that run nothing again. The dear ones see fewer traces."""
    return asyncio.run(_measured(num_traces))


async def _measured(num_traces: int) -> list[Figure]:
    team = Team.of(make_topology("centralized"), ScriptedEngine("relay", _script))
    assignment = Assignment(task_id="relay", prompt="pass it on", verify=float)
    traces = []
    for seed in range(num_traces):
        seeded = Team.of(team.topology, ScriptedEngine("relay", _script), seed=seed)
        traces.append(await run(seeded, assignment, trace_id=f"relay-{seed}"))
    truths = [{event: _effect(trace, event) for event in _SAID} for trace in traces]
    edges = [{f"{event}>orchestrator": effect for event, effect in truth.items()} for truth in truths]
    figures = []
    for title, settings in _VARIANTS.items():
        forks = Forks(team, assignment)
        count = num_traces if title in _CHEAP else min(num_traces, _MANY)
        credits = await ESTIMATORS["message-replay"].function(traces[:count], runner=forks, **settings)
        exact = (edges if settings.get("level") == "edge" else truths)[:count]
        figures.append(
            judge(
                "relay, teams",
                "message-replay",
                credits,
                exact,
                title=title,
                unbiased=True,
                tokens=forks.cost.tokens,
            )
        )
    return [*figures, *_without_forks(traces[:_MANY])]


def _without_forks(traces: Sequence[Trace]) -> list[Figure]:
    """Estimators that run nothing again, in groups: on the message, its turn, its agent or the token that says it."""
    groups = [traces[start : start + _GROUP] for start in range(0, len(traces) - _GROUP + 1, _GROUP)]
    truths = [_by_target(trace) for group in groups for trace in group]
    figures = []
    for name, (title, settings) in _GIVEN.items():
        credits = []
        for group in groups:
            scored = [_told(trace) for trace in group] if name == "maporl" else group
            credits += ESTIMATORS[name](scored, **settings)
        if ESTIMATORS[name].units == ("team",):  # everybody's, so it is the credit of each word
            credits = [[structs.replace(mine[0], target=event) for event in _SAID] for mine in credits]
        figures.append(judge("relay, teams", name, credits, truths, title=title, group_size=_GROUP))
    return figures


def _told(trace: Trace) -> Trace:
    """With a reward on the turn of each worker: whether it said 1."""
    return trace.with_records(
        rewards=[
            Reward(
                family="process",
                unit="turn",
                target=event.call or "",
                value=_bit(trace, event.id),
                name="told",
            )
            for event in map(trace.event, _SAID)
        ]
    )


def _bit(trace: Trace, event: str) -> float:
    return float(trace.text(trace.event(event).content_ref) or 0)


def _by_target(trace: Trace) -> dict[str, float]:
    """The exact effect of each word, by everything it may be credited to."""
    found: dict[str, float] = {}
    for name in _SAID:
        event, effect = trace.event(name), _effect(trace, name)
        call = event.call or ""
        place = (event.span or (0, 1))[1] - 1  # the bit is the last thing it says
        found |= {name: effect, call: effect, event.agent: effect, f"{call}:{place}": effect}
    return found


def _value(prefix: Prefix) -> float:
    """Exact: the expected return after what has been said."""
    heard = [e.id for e in prefix.trace.events[: prefix.num_events] if e.id in _SAID]
    if not heard:
        return _FIRST * _SECOND["1"] + (1 - _FIRST) * _SECOND["0"]
    bit = int(_bit(prefix.trace, heard[-1]))
    return _SECOND[str(bit)] if len(heard) == 1 else float(bit)


def _token_values(trace: Trace, call: Call) -> list[float]:
    """Exact, before each token: the bit is known once it is said."""
    size = len(call.completion_ids or ())
    said = next((e for e in trace.events if e.call == call.id and e.id in _SAID), None)
    first = next(place for place, event in enumerate(trace.events) if event.call == call.id)
    before = _value(Prefix(trace, first))
    if said is None:
        return [before] * size
    end = (said.span or (0, size))[1]
    return [before] * end + [_value(Prefix(trace, trace.position[said.id] + 1))] * (size - end)


def _own_chance(trace: Trace, agent: str) -> float:
    """That a worker says 1, given what it was told."""
    return {"worker1": _FIRST, "worker2": _SECOND[str(int(_bit(trace, _SAID[0])))]}.get(agent, 0.0)


_GROUP = 8
_SAID = ("worker1#1", "worker2#1")
_GIVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("mean (team's return)", {}),
    "siblings": ("siblings, same observation", {"context": "observation"}),
    "telescope": ("telescope, exact critic", {"unit": "message", "value": _value}),
    "gae": ("gae, exact critic", {"value": _value, "gamma": 1.0}),
    "token-gae": ("token-gae, exact critic", {"value": _token_values}),
    "turn-group": ("turn-group", {}),
    "return-to-go": ("return-to-go", {}),
    "maporl": ("maporl", {}),
    "agent-group": ("agent-group", {}),
    "vdn": ("vdn, exact value at the start", {"q": lambda _, agent: 0.6 if agent == "orchestrator" else 0.0}),
    "qmix": (
        "qmix, exact chances of both words",
        {"q": _own_chance, "mix": lambda _: lambda values: 0.15 + 0.25 * values[1] + 0.5 * values[2]},
    ),
}


def _effect(trace: Trace, event: str) -> float:
    """Exact total effect of a message."""
    first = trace.text(trace.event("worker1#1").content_ref) or ""
    if event == "worker1#1":
        return _SECOND[first] - (_FIRST * _SECOND["1"] + (1 - _FIRST) * _SECOND["0"])
    return float(trace.text(trace.event(event).content_ref) or 0) - _SECOND[first]
