"""A person who steers a run is asked for endorsements: in real time, also where the run's clock is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import pytest
from test_guard import BAD, PAID, READ, refusals, team_of

from baton.team.people import Act, RunStanding
from baton.team.running import Run, header_of, replay
from baton.team.team import Assignment
from baton.trace.trace import Trace

TASK = Assignment(task_id="t", prompt="pay bob 5")


class Person:
    """Decides on whatever waits, as soon as it is told of it."""

    def __init__(self, do: Literal["approve", "refuse"], to: str = "") -> None:
        self.do, self.to = do, to
        self.acts: list[Act] = []
        self.seen: list[str] = []

    def heard(self) -> Sequence[Act]:
        acts, self.acts = self.acts, []
        return acts

    def tell(self, standing: RunStanding) -> None:
        for asked in standing.requests:
            if asked["id"] not in self.seen:
                assert (asked["agent"], asked["tool"]) == ("main", "pay")
                assert asked["arguments"] == {"to": "mallory", "amount": 99}
                assert asked["why"] == "its caller has read untrusted text"
                self.seen.append(asked["id"])
                self.acts.append(Act(id=f"act-{len(self.seen)}", do=self.do, to=self.to or asked["id"]))


def steered(person: Person, clock: Literal["virtual", "real"], seconds: float) -> Trace:
    guard = {"tools": {"pay": {"endorse": ["person"]}}, "wait_seconds": seconds}
    team = team_of(READ, BAD, "stop ok", guard=guard, clock=clock)
    PAID.clear()
    trace = asyncio.run(Run(team, TASK, header_of(team, TASK), steering=person).go())
    assert asyncio.run(replay(trace, team, TASK)).events == trace.events
    return trace


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_who_steers_is_asked_and_decides(clock: Literal["virtual", "real"]) -> None:
    trace = steered(Person("approve"), clock, 60.0)
    assert PAID == ["mallory 99"]
    (word,) = [e for e in trace.events if e.type == "human_intervention"]
    assert word.status == "ok"
    trace = steered(Person("refuse"), clock, 60.0)
    assert PAID == []
    assert refusals(trace)[-1].endswith("a person refused it")


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_word_on_something_else_decides_nothing(clock: Literal["virtual", "real"]) -> None:
    trace = steered(Person("approve", to="main#99"), clock, 0.5)
    assert PAID == []
    assert refusals(trace)[-1].endswith("nobody let it through within 0.5 seconds")
    assert [e.status for e in trace.events if e.type == "human_intervention"] == ["invalid"]
