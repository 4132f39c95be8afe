"""Thousands of schedules of crashes, hangs, delays, duplicates and full disks: the trace always says what happened."""

from __future__ import annotations

import asyncio

import pytest
from chaos import TOPOLOGY_NAMES, make_team
from msgspec import structs

from baton.team.budget import Limits
from baton.team.team import Team
from baton.testing.faults import Faults, Outcome, simulate
from baton.trace.canonical import canonical_hash
from baton.trace.validation import validate

LIMITS = Limits(agents=8, concurrent=5, depth=3, tokens=20_000, calls=60, tool_calls=12, seconds=120.0)


def schedule(topology: str, seed: int, faults: Faults | None = None) -> Outcome:
    team, assignment = make_team(topology, seed, limits=LIMITS)
    roles = tuple(structs.replace(role, max_seconds=30.0) for role in team.topology.roles)
    slow = structs.replace(team.topology, roles=roles)
    engine = next(iter(team.engines.values()))
    team = Team.of(slow, engine, tools=team.harness.tools, seed=seed, limits=LIMITS)
    return asyncio.run(simulate(team, assignment, seed, faults))


def check(topology: str, seed: int) -> Outcome:
    outcome = schedule(topology, seed)
    trace = outcome.trace
    assert validate(trace) == [], f"{topology} seed {seed}"
    assert trace.finished
    assert sum(e.type == "spawn" for e in trace.events) <= (LIMITS.agents or 0)
    assert sum(e.tokens or 0 for e in trace.events) <= (LIMITS.tokens or 0)
    assert len(trace.calls) <= (LIMITS.calls or 0)
    assert trace.costs["wall_clock_s"] <= (LIMITS.seconds or 0)
    spawned = {e.to for e in trace.events if e.type == "spawn"}
    assert spawned == {e.to for e in trace.events if e.type == "despawn"}  # no orphan
    return outcome


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@pytest.mark.parametrize("batch", range(5))
def test_schedules(topology: str, batch: int) -> None:
    for seed in range(batch * 10, batch * 10 + 10):
        check(topology, seed)


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@pytest.mark.parametrize("batch", range(20))
def test_ten_thousand_schedules(topology: str, batch: int) -> None:
    for seed in range(1_000 + batch * 84, 1_000 + batch * 84 + 84):  # 6 x 20 x 84 = 10,080
        check(topology, seed)


def test_faults_do_happen_and_a_schedule_is_a_function_of_its_seed() -> None:
    outcomes = [check("centralized", seed) for seed in range(40)]
    assert sum(o.crashes for o in outcomes) > 0
    assert sum(o.full_disks for o in outcomes) > 0
    statuses = {e.status for o in outcomes for e in o.trace.events}
    assert {"ok", "failed", "invalid", "forced", "cancelled"} <= statuses
    again = schedule("centralized", 7)
    assert canonical_hash(again.trace, times=True) == canonical_hash(outcomes[7].trace, times=True)


def test_crashes_alone_change_nothing() -> None:
    calm = Faults(crash=0.0, disk_full=0.0)
    for seed in range(20):
        crashed = schedule("hierarchical", seed, structs.replace(calm, crash=0.3, disk_full=0.2))
        whole = schedule("hierarchical", seed, calm)
        assert canonical_hash(crashed.trace, times=True) == canonical_hash(whole.trace, times=True)
