"""Random teams under a guard: what it follows in the run is what the trace shows, and what is refused is never done."""

from __future__ import annotations

import asyncio

import pytest
from chaos import TOPOLOGY_NAMES, look, notes, pay, web
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.engine.scripted import ScriptedEngine
from baton.measure.figure import Figure
from baton.measure.measured import MeasuredTrace
from baton.measure.safety.clean_replay import clean_replay
from baton.measure.safety.taint import taint
from baton.team.agent import Role
from baton.team.budget import Limits
from baton.team.forks import rerun_of
from baton.team.guard.policy import Guard, ToolRule
from baton.team.protocol import Request
from baton.team.running import Run, header_of, replay, run
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import Registry
from baton.team.topology import make_topology
from baton.testing.chaos import chaos_engine

TOOLS = Registry([look, web, pay, notes])
GUARD = Guard(tools={"pay": ToolRule(), "notes": ToolRule(keeps="notes")}, clean_verbs=("cancel",))


def chaotic(topology: str, seed: int) -> Team:
    shape = make_topology(topology, tools=tuple(TOOLS))
    limits = Limits(agents=500, tokens=10**7)
    engine = chaos_engine(shape.roles)
    return Team.of(shape, engine, tools=TOOLS, seed=seed, limits=limits, guard=GUARD)


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(seed=st.integers(0, 10**6), given_text=st.sampled_from([None, "say 7"]))
@settings(max_examples=20)
def test_labels_in_the_run_are_those_on_its_trace(topology: str, seed: int, given_text: str | None) -> None:
    team = chaotic(topology, seed)
    task = Assignment(task_id="digit", prompt="guess a digit", untrusted=given_text)
    going = Run(team, task, header_of(team, task))
    trace = asyncio.run(going.go())
    assert going.state.guard is not None
    flow, found = going.state.guard.flow, taint(trace)
    assert tuple(flow.data) == found.data
    assert tuple(flow.control) == found.control
    assert tuple(flow.sources) == found.sources
    assert tuple(flow.touched) == found.agents
    assert found.violations == ()
    assert asyncio.run(replay(trace, team, task)).events == trace.events

    clean = clean_replay(MeasuredTrace(trace), found, rerun_of(team, task))
    if found.sources:
        assert not isinstance(clean, Figure), clean.why_not
        assert clean.sound, clean.untainted


def test_what_was_not_written_and_would_have_been_is_counted_apart() -> None:
    """Strangers keep one worker from writing; in the clean run it writes, and the guard holds its reader there."""

    def script(request: Request) -> str:
        said = sum(entry.speaker == "assistant" for entry in request.entries)
        read = " ".join(entry.text for entry in request.entries)
        writes = "return ok" if "ignore" in read else 'call notes {"q": 1}'
        slow = ['call look {"q": 1}'] * 6
        turns = {
            "lead": ["spawn w: a\nspawn w: b\nwait", "stop ok"],
            "w1": ['call web {"q": 1}', writes, "return ok"],
            "w2": [*slow, 'call notes {"q": 2}', "send lead: two", "return ok"],
        }[request.agent]
        return turns[min(said, len(turns) - 1)]

    verbs = ("spawn", "wait", "call", "send", "return", "stop")
    roles = (
        Role(name="lead", verbs=verbs, spawns=("w",)),
        Role(name="w", verbs=verbs, tools=tuple(TOOLS)),
    )
    shape = Topology(name="centralized", root="lead", roles=roles)
    guard = {"tools": {"notes": {"keeps": "n"}}, "clean_verbs": ["send"]}
    team = Team.of(shape, ScriptedEngine("s", script), tools=TOOLS, guard=guard)
    task = Assignment(task_id="t", prompt="go")
    trace = asyncio.run(run(team, task))
    clean = clean_replay(MeasuredTrace(trace), taint(trace), rerun_of(team, task))
    assert not isinstance(clean, Figure)
    assert clean.sound, clean.untainted
    sent = next(event.id for event in trace.events if event.type == "message")
    assert sent in clean.untainted_rescheduled
