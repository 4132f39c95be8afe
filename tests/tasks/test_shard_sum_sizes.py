"""The example task at sizes it was not made for: one shard, an odd number, hundreds; and answers that are cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import made, traces

import baton
from baton.cli import main
from baton.tasks.shard_sum import ShardSum
from baton.team.topology import TOPOLOGIES
from baton.trace.trace import Trace


@pytest.mark.parametrize("num_shards", [1, 2, 3, 7])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_small_and_odd_numbers_of_shards(
    topology: str, num_shards: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "--set", f"task.num_shards={num_shards}", topology=topology)
    assert "reward   shared 1" in capsys.readouterr().out
    assert all(event.status != "invalid" for event in traces(tmp_path)[0].events)


@pytest.mark.parametrize("surface", ["lines", "tools"])
def test_three_hundred_shards_are_read_by_three_hundred_workers(
    surface: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "--surface", surface, "--set", "task.num_shards=300")
    said = capsys.readouterr().out
    assert "reward   shared 1" in said
    assert "301 agents" in said
    assert "cut " not in said
    assert main(["replay", str(tmp_path)]) == 0


@pytest.mark.parametrize("topology", ["hierarchical", "debate", "planner_executor_critic", "harness"])
def test_three_hundred_shards_in_other_forms(
    topology: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "--set", "task.num_shards=300", topology=topology)
    assert "reward   shared 1" in capsys.readouterr().out


def test_the_same_from_python() -> None:
    trace = baton.run("shard-sum", settings={"task.num_shards": 120})
    assert isinstance(trace, Trace)
    assert trace.rewards[0].value == 1.0


def test_an_answer_that_was_cut_off_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, "--set", "task.num_shards=30", "--set", "max_tokens=256")
    said = capsys.readouterr().out
    assert "cut      2 answers at the limit of tokens (orchestrator 256)" in said
    assert "--set max_tokens=512" in said
    made(tmp_path / "room", "--set", "task.num_shards=30", "--set", "sampling.max_tokens=150")
    assert "(orchestrator 150)" in capsys.readouterr().out


def test_a_limit_that_is_set_stands_and_the_usual_one_is_the_same(tmp_path: Path) -> None:
    """Runs that had room before have the same calls as ever: traces of older versions are replayed as they are."""
    made(tmp_path / "small")
    assert {call.sampling.max_tokens for call in traces(tmp_path / "small")[0].calls if call.sampling} == {
        1024
    }
    made(tmp_path / "set", "--set", "task.num_shards=100", "--set", "max_tokens=700")
    assert {call.sampling.max_tokens for call in traces(tmp_path / "set")[0].calls if call.sampling} == {700}


def test_a_model_is_not_asked_for_more_than_is_set() -> None:
    """A server may refuse the room that a script's characters need."""
    answers = {"orchestrator": "stop 1", "default": "return 1"}
    trace = baton.run(
        "shard-sum",
        policy=lambda request: answers.get(request.role, "return 1"),
        settings={"task.num_shards": 300},
    )
    assert isinstance(trace, Trace)
    assert {call.sampling.max_tokens for call in trace.calls if call.sampling} == {1024}


def test_the_room_is_enough_for_the_longest_thing_said() -> None:
    for num_shards in (1, 10, 300):
        trace = baton.run("shard-sum", settings={"task.num_shards": num_shards})
        assert isinstance(trace, Trace)
        longest = max(call.completion_tokens or 0 for call in trace.calls)
        assert longest <= (ShardSum(num_shards=num_shards).longest_answer() or 0)
