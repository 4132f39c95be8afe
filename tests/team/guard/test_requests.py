"""Calls that wait for an endorsement: by a person, by an agent that planned them, by nobody."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from test_guard import BAD, GOOD, PAID, READ, TOOLS, refusals, team_of

from baton.engine.scripted import ScriptedEngine
from baton.measure.safety.taint import taint
from baton.team.agent import Role
from baton.team.clock import Op
from baton.team.forks import fork
from baton.team.guard.watch import CallRequest
from baton.team.intervene import Replace
from baton.team.people import Act
from baton.team.protocol import Request
from baton.team.running import Run, header_of, replay
from baton.team.team import Assignment, Team, Topology
from baton.team.tools import make_tools
from baton.trace.trace import Trace
from baton.trace.validation import validate

TASK = Assignment(task_id="t", prompt="pay bob 5")


def guard(*who: str, **rule: Any) -> dict[str, Any]:
    return {"tools": {"pay": {"endorse": list(who), **rule}}, "wait_seconds": 0.5}


def asked(team: Team, answer: bool | None) -> tuple[Trace, list[CallRequest]]:
    """A run with a person who answers every request alike, or nobody."""
    PAID.clear()
    going = Run(team, TASK, header_of(team, TASK))
    seen: list[CallRequest] = []

    def person(request: CallRequest) -> None:
        seen.append(request)
        if answer is not None:
            going.decide(request, approved=answer)

    going.state.ask_person = person
    trace = asyncio.run(going.go())
    assert validate(trace) == []
    assert asyncio.run(replay(trace, team, TASK)).events == trace.events
    return trace, seen


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_person_lets_a_call_through(clock: Literal["virtual", "real"]) -> None:
    team = team_of(READ, BAD, "stop ok", guard=guard("person"), clock=clock)
    trace, seen = asked(team, True)
    assert [(each.tool, each.arguments) for each in seen] == [("pay", {"to": "mallory", "amount": 99})]
    assert PAID == ["mallory 99"]
    (call,) = [e for e in trace.events if e.type == "tool_call" and e.tool == "pay"]
    assert call.extra["allowed"] == "endorsed"
    assert call.extra["request"] == seen[0].id
    assert ("human#1", call.id) in {(e.src, e.dst) for e in trace.edges}
    assert taint(trace).violations == ()
    assert sum(e.tokens or 0 for e in trace.events) == trace.costs["tokens"]


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_person_refuses_or_nobody_comes(clock: Literal["virtual", "real"]) -> None:
    team = team_of(READ, BAD, "stop ok", guard=guard("person"), clock=clock)
    refused, _ = asked(team, False)
    assert PAID == []
    assert refusals(refused)[-1] == "its caller has read untrusted text, and a person refused it"
    late, _ = asked(team, None)
    assert PAID == []
    assert refusals(late)[-1].endswith("nobody let it through within 0.5 seconds")
    assert "refused by the guard" in (late.text(late.calls[-1].prompt_ref) or "")


def test_what_must_always_be_endorsed() -> None:
    team = team_of(GOOD, "stop ok", guard=guard("person", always=True))
    assert asked(team, True)[0].finished
    assert PAID == ["bob 5"]
    asked(team, None)
    assert PAID == []


def test_a_person_who_may_not_endorse_cannot() -> None:
    team = team_of(READ, BAD, "stop ok", guard=guard("branch"))
    trace, _ = asked(team, True)
    assert PAID == []
    assert refusals(trace)[-1].endswith("within 0.5 seconds")


def test_two_calls_of_one_answer_wait_apart() -> None:
    team = team_of(READ, f'{BAD}\n{GOOD}\ncall book {{"name": "bob"}}', "stop ok", guard=guard("person"))
    PAID.clear()
    going = Run(team, TASK, header_of(team, TASK))
    going.state.ask_person = lambda request: going.decide(request, approved=request.arguments["to"] == "bob")
    trace = asyncio.run(going.go())
    assert PAID == ["bob 5"]
    read = trace.text(trace.calls[-1].prompt_ref) or ""
    assert "paid bob" in read
    assert "AC-17" in read
    assert "a person refused it" in read


def pair(planner: list[str], worker: list[str], **rule: Any) -> Team:
    """A lead that spawns a critic, which plans, and a worker, which reads and pays."""
    tools = make_tools([*TOOLS, "plan"])
    verbs = ("spawn", "wait", "call", "stop", "return")
    roles = (
        Role(name="lead", verbs=verbs, spawns=("critic", "worker"), tools=("plan",)),
        Role(name="critic", verbs=("call", "return"), tools=tuple(tools)),
        Role(name="worker", verbs=("call", "return"), tools=tuple(tools)),
    )

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        lead = ["spawn worker: pay\nspawn critic: look after it\nwait all", "stop ok"]
        return {"lead": lead, "critic": planner, "worker": worker}[request.role][turn]

    shape = Topology(name="centralized", root="lead", roles=roles)
    return Team.of(
        shape,
        ScriptedEngine("script", script),
        tools=tools,
        guard=guard("critic", **rule) | {"wait_seconds": 60},
    )


PLAN = 'call plan {"calls": [{"tool": "pay", "arguments": {"to": "bob", "amount": 5}}]}'
LOOK = 'call book {"name": "a"}'


def test_a_named_agent_endorses_by_planning_the_very_call() -> None:
    asked(pair([PLAN, "return ok"], [READ, GOOD, "return ok"]), None)
    assert PAID == ["bob 5"]
    trace, _ = asked(pair([LOOK, LOOK, PLAN, "return ok"], [READ, GOOD, "return ok"]), None)
    assert PAID == ["bob 5"]  # it waited
    assert any("request" in e.extra and e.type == "safety_event" for e in trace.events)


def test_endorsements_that_count_for_nothing() -> None:
    # By one who has read what strangers wrote, by the one who asks, of another call, by a role that may not.
    asked(pair([READ, PLAN, "return ok"], [READ, GOOD, "return ok"]), None)
    assert PAID == []
    asked(pair(["return ok"], [PLAN, READ, GOOD, "return ok"]), None)
    assert PAID == []
    asked(pair([PLAN, "return ok"], [READ, BAD, "return ok"]), None)
    assert PAID == []
    partly = 'call plan {"calls": [{"tool": "pay", "arguments": {"to": "bob"}}]}'
    asked(pair([partly, "return ok"], [READ, GOOD, "return ok"]), None)
    assert PAID == []
    twice = asked(pair([PLAN, "return ok"], [READ, f"{GOOD}\n{GOOD}", "return ok"]), None)[0]
    assert PAID == ["bob 5"]
    assert len(refusals(twice)) == 2


def test_what_was_approved_is_not_what_a_fork_asks_for() -> None:
    def script(request: Request) -> str:
        said = sum(entry.speaker == "assistant" for entry in request.entries)
        to = "eve" if "eve" in request.entries[-1].text else "mallory"
        return [READ, f'call pay {{"to": "{to}", "amount": 99}}', "stop ok"][said]

    tools = make_tools([*TOOLS, "plan"])
    shape = team_of("stop").topology
    team = Team.of(shape, ScriptedEngine("s", script), tools=tools, guard=guard("person"))
    PAID.clear()
    going = Run(team, TASK, header_of(team, TASK))

    def person(request: CallRequest) -> None:  # who takes a while
        act = Act(id="one", do="approve", to=request.id)
        going.driver.schedule(Op("person", "", None, act), going.driver.now + 0.4)

    going.state.ask_person = person
    trace = asyncio.run(going.go())
    assert PAID == ["mallory 99"]
    same = asyncio.run(fork(trace, team, TASK, [Replace("main#1r", "still mallory")], allow_impure=True))
    assert PAID == ["mallory 99", "mallory 99"]
    assert same.trace.finished
    other = asyncio.run(fork(trace, team, TASK, [Replace("main#1r", "pay eve")], allow_impure=True))
    assert PAID == ["mallory 99", "mallory 99"]
    (word,) = [e for e in other.trace.events if e.type == "human_intervention"]
    assert (word.status, word.extra["why"]) == ("invalid", "it was said of another call")


def test_who_asks_may_leave_meanwhile() -> None:
    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "main":
            return ["spawn branch: x", 'call book {"name": "a"}', "stop ok"][turn]
        return ["", READ, BAD][turn]  # it begins with what main had said

    tools = make_tools([*TOOLS, "plan"])
    team = team_of("stop", guard=guard("person"))
    team = Team.of(team.topology, ScriptedEngine("s", script), tools=tools, guard=guard("person"))
    trace, _ = asked(team, None)
    assert PAID == []
    assert trace.finished
