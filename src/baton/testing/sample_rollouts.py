"""A small group of rollouts to check rewards and estimators on, with the team that made them.

The root sends a worker to look something up, or answers by itself; the worker picks a place, calls a tool and
tells what it found, not always truly. Choices are drawn by key and recorded with their options and chances.
There are rewards on the team, on turns and on tool calls, tokens, spans, prompts, and prefixes that several
rollouts share. Invariant: the same seeds give the same traces.
"""

from __future__ import annotations

import asyncio

from baton.engine.scripted import ScriptedEngine
from baton.reward.rules.tool_use import ToolUse
from baton.team.agent import Agent
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.records import Reward
from baton.trace.trace import Trace

_SPAWN, _ALONE = "spawn worker: look it up", "stop 0"
_PLACES = ('call look {"place": "near"}', 'call look {"place": "far"}')


@tool(pure=True)
def look(place: str) -> str:
    """Look for it somewhere."""
    return "1" if place == "near" else "0"


def _turn(request: Request) -> int:
    return sum(entry.speaker == "assistant" for entry in request.entries)


def _drawn(request: Request, options: tuple[str, str], chance: float) -> Answer:
    choice = int(uniform(request.sampling.key or "") >= chance)
    return Answer(
        text=options[choice], policy="sample", choice=choice, option_propensities=(chance, 1 - chance)
    )


def _script(request: Request) -> str | Answer:
    last = request.entries[-1].text[-1:]
    if request.role == "worker":
        if _turn(request) == 0:
            return _drawn(request, _PLACES, 0.6)
        return f"return {last if uniform(request.sampling.key or '') < 0.6 else 0}"
    if _turn(request) == 0:
        return _drawn(request, (_SPAWN, _ALONE), 0.75)
    return "wait all" if _turn(request) == 1 else f"stop {last}"


def _options(me: Agent) -> tuple[str, ...] | None:
    if me.turns != 1:
        return None
    return _PLACES if me.role.name == "worker" else (_SPAWN, _ALONE)


def _team(seed: int) -> tuple[Team, Assignment]:
    team = Team.of(
        make_topology("centralized", tools=("look",)),
        ScriptedEngine("sample", _script),
        tools=Registry((look,)),
        seed=seed,
    )
    return team, Assignment(
        task_id="sample", prompt="is it there?", verify=lambda answer: float(answer == "1"), options=_options
    )


def sample_group(num_rollouts: int = 12) -> list[Trace]:
    """Rollouts of one task that differ in their seed."""
    return [
        _scored(asyncio.run(run(*_team(seed), trace_id=f"sample-{seed}"))) for seed in range(num_rollouts)
    ]


def sample_forks() -> Forks:
    """Runs the sample's rollouts again."""
    return Forks(*_team(0))


def _scored(trace: Trace) -> Trace:
    said = {call.id: trace.text(call.completion_ref) or "" for call in trace.calls}
    found = [
        Reward(family="process", unit="turn", target=call, value=float("1" in text), name="told")
        for call, text in said.items()
    ]
    return trace.with_records(rewards=[*found, *ToolUse().score(trace)])
