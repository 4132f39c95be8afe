"""Mixed topologies: one form whose workers are teams of another form, with replay and forks as for any team."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import pytest

from baton.cli import main
from baton.compose.run_settings import Settings
from baton.compose.team_from_settings import make_team
from baton.errors import UsageError
from baton.team.forks import fork
from baton.team.intervene import BarAgent, Drop, Replace
from baton.team.running import replay, run
from baton.team.topology import make_topology
from baton.testing import check_topology
from baton.trace.trace import Trace
from baton.trace.validation import validate

FORMS = list(
    product(("centralized", "hierarchical"), ("debate", "swarm", "planner_executor_critic", "centralized"))
)


def played(seed: int, **settings: object) -> tuple[Trace, object, object]:
    given = Settings(
        task="shard-sum",
        topology="mixed",
        policies={"default": "reference"},
        seed=seed,
        topology_settings=settings,
        task_settings={"num_shards": 3 + seed},
    )
    team, assignment = make_team(given)
    return asyncio.run(run(team, assignment)), team, assignment


@pytest.mark.parametrize(("outer", "inner"), FORMS)
def test_every_mixture_conforms(outer: str, inner: str) -> None:
    check_topology(make_topology("mixed", outer=outer, inner=inner, tools=("look",)), seeds=range(5))


@pytest.mark.parametrize(("outer", "inner"), FORMS)
def test_every_mixture_solves_the_example_and_repeats(outer: str, inner: str) -> None:
    for seed in range(2):
        trace, team, assignment = played(seed, outer=outer, inner=inner)
        assert [reward.value for reward in trace.rewards] == [1.0]
        assert trace.header.topology == "mixed"
        assert validate(trace) == []
        assert asyncio.run(replay(trace, team, assignment)) == trace  # type: ignore[arg-type]


def test_workers_are_small_debates() -> None:
    trace, _, _ = played(1, members=3, rounds=2)
    spawned: dict[str, list[str]] = {}
    for event in trace.events:
        if event.type == "spawn":
            spawned.setdefault(event.agent, []).append(event.role or "")
    assert spawned.pop("orchestrator") == ["worker"] * 4
    assert len(spawned) == 4
    assert all(roles == ["debater"] * 3 for roles in spawned.values())
    fused = [event for event in trace.events if event.type == "aggregate"]
    assert {event.agent for event in fused} == set(spawned)
    stops = [event.agent for event in trace.events if event.decision == "stop"]
    assert stops == ["orchestrator"]  # a worker's debate ends its own task, not the run


def test_forks_inside_a_worker_rerun_only_what_depends_on_it() -> None:
    trace, team, assignment = played(2, members=3, rounds=1)
    inside = [e for e in trace.events if e.type == "return" and e.agent.startswith("worker2.debater")]
    assert len(inside) == 3

    def again(*changes: object) -> Trace:
        forked = asyncio.run(fork(trace, team, assignment, list(changes)))  # type: ignore[arg-type]
        assert asyncio.run(replay(forked.trace, team, assignment)) == forked.trace  # type: ignore[arg-type]
        assert validate(forked.trace) == []
        gone = {event.split("#")[0].split(".")[0] for event in forked.invalidated}
        assert gone <= {"worker2", "orchestrator"}  # nobody beside them heard of it
        return forked.trace

    # One of three debaters says something else: the vote stands. Two that agree on it carry it.
    assert again(Replace(inside[0].id, "7")).rewards[0].value == 1.0
    assert again(Replace(inside[0].id, "7"), Replace(inside[1].id, "7")).rewards[0].value == 0.0
    assert again(Drop(inside[2].id)).finished
    without = asyncio.run(fork(trace, team, assignment, [BarAgent("worker2.debater3")]))  # type: ignore[arg-type]
    assert without.trace.rewards[0].value == 1.0


def test_a_worker_can_be_given_a_second_task() -> None:
    from baton.engine.scripted import ScriptedEngine
    from baton.team.protocol import Request
    from baton.team.team import Assignment, Team

    def script(request: Request) -> str:
        said = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "debater":
            return "return yes" if "first" in request.entries[-1].text else "return no"
        return ["spawn worker: first\nwait", "delegate worker1: then\nwait", "stop done"][min(said, 2)]

    team = Team.of(make_topology("mixed", members=2, rounds=1), ScriptedEngine("s", script))
    trace = asyncio.run(run(team, Assignment(task_id="t", prompt="go")))
    returned = [
        trace.text(e.content_ref) for e in trace.events if e.type == "return" and e.agent == "worker1"
    ]
    assert returned == ["yes", "no"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "mixed")
    words = ["run", "shard-sum", "--topology", "mixed", "--set", "outer=hierarchical"]
    assert main([*words, "--set", "inner=planner_executor_critic", "--out", out]) == 0
    assert "reward   shared 1" in capsys.readouterr().out
    assert main(["replay", out]) == 0
    assert main(["run", "shard-sum", "--topology", "mixed", "--set", "inner=debat", "--out", out]) == 2
    assert "debate" in capsys.readouterr().err


def test_what_cannot_be_mixed_is_said() -> None:
    with pytest.raises(UsageError, match="levels"):
        make_topology("mixed", outer="hierarchical", levels=1)
