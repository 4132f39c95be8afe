"""A person who steers a run decides on the calls that its guard holds back."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from test_guard import BAD, PAID, READ, team_of

from baton.team.people import Act, RunStanding
from baton.team.running import Run, header_of, replay
from baton.team.team import Assignment
from baton.trace.trace import Trace
from baton.trace.validation import validate

TASK = Assignment(task_id="t", prompt="pay bob 5")


class Decides:
    """Looks at what waits, and says the same to everything; it pauses the run first."""

    def __init__(self, do: Literal["approve", "refuse"], *, pauses: bool) -> None:
        self.do = do
        self.todo: list[Act] = [Act(id="p", do="pause")] if pauses else []
        self.seen: dict[str, dict[str, Any]] = {}
        self.pauses = pauses

    def heard(self) -> list[Act]:
        todo, self.todo = self.todo, []
        return todo

    def tell(self, standing: RunStanding) -> None:
        for request in standing.requests:
            if request["id"] not in self.seen:
                self.seen[request["id"]] = request
                self.todo.append(
                    Act(id=request["id"], do=self.do, to=request["id"], text="because", by="ann")
                )
        if standing.paused and self.pauses:
            self.pauses = False
            self.todo.append(Act(id="g", do="go"))


def decided(do: Literal["approve", "refuse"], clock: Literal["virtual", "real"], *, pauses: bool) -> Trace:
    PAID.clear()
    guard = {"tools": {"pay": {"endorse": ["person"]}}, "wait_seconds": 60}
    team = team_of(READ, BAD, "stop ok", guard=guard, clock=clock)
    hand = Decides(do, pauses=pauses)
    trace = asyncio.run(Run(team, TASK, header_of(team, TASK), steering=hand).go())
    assert [(each["tool"], each["arguments"]) for each in hand.seen.values()] == [
        ("pay", {"to": "mallory", "amount": 99})
    ]
    assert validate(trace) == []
    assert asyncio.run(replay(trace, team, TASK)).events == trace.events
    return trace


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_call_waits_for_whoever_steers(clock: Literal["virtual", "real"], pauses: bool) -> None:
    trace = decided("approve", clock, pauses=pauses)
    assert PAID == ["mallory 99"]
    said = next(e for e in trace.events if e.extra.get("do") == "approve")
    assert (said.status, said.extra["by"]) == ("ok", "ann")
    decided("refuse", clock, pauses=pauses)
    assert PAID == []
