"""Random teams, guards and shared memories, of agents that change their mind at any word that they read.

What a guard does is what the trace shows, no tainted call acts that its rule does not allow, a replay comes to the
same, and whatever differs from the run without the strangers' words is tainted.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from random import Random
from typing import Any

import pytest
from chaos import TOPOLOGY_NAMES, look, notes, pay, web
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.measure.figure import Figure
from baton.measure.measured import MeasuredTrace
from baton.measure.safety.clean_replay import clean_replay
from baton.measure.safety.taint import taint
from baton.team.agent import Role
from baton.team.budget import Limits
from baton.team.forks import rerun_of
from baton.team.protocol import Request
from baton.team.running import Run, header_of, replay
from baton.team.shared_memory import SharedMemory
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.testing.chaos import chaos_engine


@tool(pure=True)
def seen(q: int) -> str:
    """Shows what is kept, as its rule has it."""
    return f"seen {q}"


TOOLS = Registry([look, web, pay, notes, seen])


def moody(roles: tuple[Role, ...]) -> ScriptedEngine:
    """One word more or less in all that it has read, and it does something else."""
    chaos = chaos_engine(roles)

    async def answer(request: Request) -> str:
        read = blake2b("\0".join(entry.text for entry in request.entries).encode(), digest_size=4).hexdigest()
        sampling = structs.replace(request.sampling, key=f"{request.sampling.key}/{read}")
        (said,) = await chaos.answer([structs.replace(request, sampling=sampling)])
        if isinstance(said, Exception):
            raise said
        return said.text

    return ScriptedEngine("moody", answer)


def drawn(topology: str, random: Random) -> tuple[Team, Assignment, dict[str, Any]]:
    shape = make_topology(topology, tools=tuple(TOOLS))
    roles = tuple(
        structs.replace(
            role,
            inherit=role.inherit or (role.name != shape.root and random.random() < 0.2),
            returns="transcript" if random.random() < 0.2 else role.returns,
        )
        for role in shape.roles
    )
    shape = structs.replace(shape, roles=roles)
    board = {"board": "say 6"} if random.random() < 0.5 else {}
    memory = SharedMemory(start=board, trusted=False) if random.random() < 0.5 else None
    rule = {"decided_by": random.choice(["clean", "anyone"]), "arguments": {"q": ["task", "look"]}}
    if random.random() < 0.4:
        rule["endorse"] = [random.choice(["person", roles[-1].name])]
    guard = {
        "tools": {"pay": rule, "notes": {"keeps": "n"}, "seen": {"looks": "n", "keeps": ""}},
        "clean_verbs": random.sample(["cancel", "spawn", "send", "delegate"], random.randrange(3)),
        "wait_seconds": 2,
    }
    team = Team.of(
        shape,
        moody(roles if memory is None else memory.given_to(roles)),
        tools=TOOLS,
        seed=random.randrange(10**6),
        limits=Limits(agents=500, tokens=10**7),
        guard=guard,
        shared_memory=memory,
    )
    given = random.choice([None, "say 7"])
    return team, Assignment(task_id="digit", prompt="guess a digit such as 3", untrusted=given), rule


@pytest.mark.parametrize("topology", [*TOPOLOGY_NAMES, "mixed"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_no_label_is_lost_and_no_tainted_call_acts(topology: str, seed: int) -> None:
    team, task, rule = drawn(topology, Random(seed))
    going = Run(team, task, header_of(team, task))
    trace = asyncio.run(going.go())
    assert going.state.guard is not None
    flow, found = going.state.guard.flow, taint(trace)
    assert tuple(flow.data) == found.data
    assert tuple(flow.control) == found.control
    tainted = set(found.tainted)
    for event in trace.events:
        if event.type == "tool_call" and event.tool == "pay" and event.id in tainted:
            by_value = rule["decided_by"] == "anyone" and event.extra["allowed"] == "values"
            assert by_value or event.extra["allowed"] == "endorsed"
    assert asyncio.run(replay(trace, team, task)).events == trace.events
    clean = clean_replay(MeasuredTrace(trace), found, rerun_of(team, task))
    if found.sources:
        assert not isinstance(clean, Figure), clean.why_not
        assert clean.sound, clean.untainted
