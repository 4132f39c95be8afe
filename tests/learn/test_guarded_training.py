"""A recipe with `[guard]`: what it refuses is refused in rollouts, in forks for credit, and in evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import careless_team
import pytest
from careless_team import PAID, READ

from baton.compose.training import begin
from baton.learn.recipe import parse
from baton.team.running import Run
from baton.trace.formats import read_all
from baton.trace.trace import Trace

GUARD = """
[guard.tools.pay]
decided_by = "clean"
"""


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    PAID.clear()
    READ.clear()


def trained(guard: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[Trace]:
    """The run's traces; besides, those of forks and of all else that was run on the way."""
    every: list[Trace] = []
    go = Run.go

    async def seen(self: Run) -> Trace:
        trace = await go(self)
        every.append(trace)
        return trace

    monkeypatch.setattr(Run, "go", seen)
    text = careless_team.recipe("obeys", "read_page", "pay", more=guard)
    session = begin(parse(text, "careless", trust=True), "careless", out)
    try:
        list(session.steps())
    finally:
        session.close()
    return every


def refused(trace: Trace) -> list[Any]:
    return [e for e in trace.events if e.type == "safety_event" and e.tool == "pay" and "refused" in e.extra]


def carried_out(trace: Trace) -> list[Any]:
    return [e for e in trace.events if e.type == "tool_result" and e.tool == "pay" and e.status == "ok"]


def test_the_guard_acts_in_rollouts_and_in_forks(
    tmp_path: Path, first_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = trained(GUARD, tmp_path / "run", monkeypatch)
    assert PAID == [], "nobody was paid, in whatever was run"
    assert READ
    kept = list(read_all(tmp_path / "run" / "traces" / "run.db"))
    assert kept
    assert all(refused(trace) for trace in kept)
    forks = [trace for trace in every if "forked_from" in trace.header.meta]
    assert any(refused(trace) for trace in forks), (
        "a fork without the planner or the critic, and with the guard"
    )
    hashes = {trace.header.meta["run"]["guard"]["hash"] for trace in every}
    assert len(hashes) == 1


def test_without_it_the_same_team_pays(
    tmp_path: Path, first_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = trained("", tmp_path / "run", monkeypatch)
    assert set(PAID) == {"mallory"}
    forks = [trace for trace in every if "forked_from" in trace.header.meta]
    assert any(carried_out(trace) for trace in forks)
    assert not any(refused(trace) for trace in every)
