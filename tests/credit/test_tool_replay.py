"""Credit of tool calls by replay: unbiased on a worker whose values are enumerated, nothing for calling more."""

from __future__ import annotations

import asyncio
from statistics import fmean, stdev

import pytest
from fork_teams import draw, traces, turn_of

from baton.credit.estimator import CreditError
from baton.credit.estimators.tool_replay import tool_calls, tool_replay
from baton.engine.scripted import ScriptedEngine
from baton.team.agent import Role
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import tool
from baton.trace.trace import Trace

LOOK, TIDY, BREAK, GUESS = 'call look {"at": "shelf"}', "call tidy {}", "call crack {}", "stop 0"
CHANCES = (0.3, 0.3, 0.2, 0.2)
AFTER_TIDYING = 0.4
"""Chance that who tidied looks after all."""


@tool(pure=True)
def look(at: str) -> str:
    """See what is there."""
    return f"at the {at}: 7"


@tool(pure=True)
def tidy() -> str:
    """Put things in order."""
    return "swept"


@tool(pure=True)
def crack() -> str:
    """Break it."""
    raise ValueError("broken")


def shelf(seed: int) -> tuple[Team, Assignment]:
    """One agent who may look and knows, tidies and may look then, breaks what there is, or guesses."""

    def script(request: Request) -> str | Answer:
        said = "\n".join(entry.text for entry in request.entries if entry.speaker != "assistant")
        if "shelf: 7" in said:
            return "stop 7"
        if turn_of(request) == 0:
            return draw(request, (LOOK, TIDY, BREAK, GUESS), CHANCES)
        if turn_of(request) == 1 and "swept" in said:
            return draw(request, (LOOK, GUESS), (AFTER_TIDYING, 1 - AFTER_TIDYING))
        return GUESS

    role = Role(name="lead", verbs=("call", "stop"), tools=("look", "tidy", "crack"))
    topology = Topology(name="alone", root="lead", roles=(role,))
    team = Team.of(topology, ScriptedEngine("script", script), tools=[look, tidy, crack], seed=seed)
    return team, Assignment(task_id="t", prompt="p", verify=lambda answer: float(answer == "7"))


def truth(trace: Trace, event_id: str) -> float:
    """By hand: what a choice is worth less what the policy's mean is worth, at the first turn and at the second."""
    event = trace.event(event_id)
    first = {"look": 1.0, "tidy": AFTER_TIDYING, "crack": 0.0}
    if event_id == tool_calls(trace)[0].id:
        return first[event.tool or ""] - (CHANCES[0] + CHANCES[1] * AFTER_TIDYING)
    return 1.0 - AFTER_TIDYING


def test_unbiased_for_every_tool_and_turn() -> None:
    errors: dict[str, list[float]] = {}
    for seed, trace in enumerate(traces(shelf, 240)):
        if not tool_calls(trace):
            continue
        [credits] = asyncio.run(tool_replay([trace], runner=Forks(*shelf(seed)), num_alternatives=3))
        assert [credit.target for credit in credits] == [event.id for event in tool_calls(trace)]
        for place, credit in enumerate(credits):
            tool_name = trace.event(credit.target).tool
            errors.setdefault(f"{tool_name} {place}", []).append(credit.value - truth(trace, credit.target))
    assert set(errors) == {"look 0", "tidy 0", "crack 0", "look 1"}
    for name, found in errors.items():
        assert abs(fmean(found)) < 3.5 * stdev(found) / len(found) ** 0.5, name


def test_a_call_that_failed_is_judged_as_well() -> None:
    trace = next(t for t in traces(shelf, 40) if [e.tool for e in tool_calls(t)] == ["crack"])
    seed = int(trace.trace_id[1:])
    [[credit]] = asyncio.run(tool_replay([trace], runner=Forks(*shelf(seed)), num_alternatives=8))
    assert credit.value < 0
    assert (credit.unit, credit.cost_tokens is not None) == ("tool_call", True)


def test_without_calls_it_says_what_to_do_instead() -> None:
    trace = next(t for t in traces(shelf, 40) if not tool_calls(t))
    with pytest.raises(CreditError, match="message-replay"):
        asyncio.run(tool_replay([trace], runner=Forks(*shelf(0))))
