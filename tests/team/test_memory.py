"""Roles that remember only the latest, and notes of the harness that come while a wait is satisfied."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.games.library import make_game
from baton.tasks.game_task import GameTask
from baton.team.agent import Context
from baton.team.protocol import Entry
from baton.team.running import replay, run
from baton.team.team import Team
from baton.trace.trace import Trace


def play(policy: str, memory: str, seed: int = 0) -> tuple[Trace, Team, GameTask]:
    task = GameTask(make_game("parallel-pandora"))
    topology = task.topology()
    roles = tuple(structs.replace(role, memory=memory) for role in topology.roles)
    engines = {
        "orchestrator": ScriptedEngine(policy, task.script(policy)),
        "inspector": ScriptedEngine("nature", lambda _: "return done"),
    }
    team = Team.of(structs.replace(topology, roles=roles), engines, seed=seed)
    return asyncio.run(run(team, task.assignment(task.instance(seed)))), team, task


def prompts(trace: Trace) -> list[list[dict[str, str]]]:
    return [
        json.loads(trace.text(call.prompt_ref) or "[]") for call in trace.calls if call.role == "orchestrator"
    ]


@pytest.mark.parametrize("memory", ["all", "latest"])
def test_every_turn_of_a_game_reads_its_own_state(memory: str) -> None:
    """Found by training: after a wait the state was read a turn late."""
    trace, _, _ = play("always-spawn", memory)
    options = [event.options for event in trace.events if event.options is not None]
    for read, open_ in zip(prompts(trace), options, strict=True):
        assert read[-1]["text"].endswith("\n".join(open_ or ()))


def test_latest_is_the_system_entry_and_the_last_one() -> None:
    trace, team, task = play("always-spawn", "latest")
    for read in prompts(trace):
        assert [entry["speaker"] for entry in read] == ["system", "user"]
    assert all(call.parent is None and call.keep == 0 for call in trace.calls)
    again = asyncio.run(replay(trace, team, task.assignment(task.instance(0))))
    assert again.events == trace.events
    whole, _, _ = play("always-spawn", "all")
    assert [event.extra.get("step") for event in whole.events] == [
        event.extra.get("step") for event in trace.events
    ]


def test_memory_is_part_of_the_harness() -> None:
    _, latest, _ = play("greedy", "latest")
    _, every, _ = play("greedy", "all")
    assert latest.harness.hash != every.harness.hash


def test_after_an_invalid_answer_the_same_is_read_again() -> None:
    context = Context()
    first = [Entry("system", "s"), Entry("user", "task"), Entry("user", "state")]
    assert context.renewed(first, again=False) == [first[0], first[2]]
    error = [Entry("user", "error: not open to you")]
    assert context.renewed(error, again=True) == [first[0], first[2]]
    assert context.renewed([Entry("user", "next")], again=False) == [first[0], Entry("user", "next")]
