"""Games on a team, as typed: traces out, ledgers back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton.cli import main
from baton.trace.formats import read_all


def typed(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(list(command)) == 0
    return capsys.readouterr().out


def test_play_on_a_team(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "runs")
    said = typed(
        capsys, "game", "play", "pandora", "--policy", "greedy", "--out", out, "--set", "in_hand=0.1"
    )
    assert "trace    game:pandora-centralized-0 in" in said
    assert said.splitlines()[-1].startswith("return ")
    assert "> stop best" in said
    assert (
        typed(capsys, "game", "play", "pandora", "--policy", "greedy", "--team", "--set", "in_hand=0.1")
        == (said.partition("\n")[2])
    )
    assert "valid (1 trace" in typed(capsys, "validate", out)
    assert "identical" in typed(capsys, "replay", out)


def test_the_ledger_of_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path)
    for policy in ("random", "optimal"):
        typed(capsys, "game", "play", "best-of-n", "--policy", policy, "--episodes", "5", "--out", out)
    typed(capsys, "run", "game:voters", "--policy", "orchestrator=table", "--seed", "7", "--out", out)
    assert len(list(read_all(tmp_path))) == 11
    found = json.loads(typed(capsys, "game", "regret", out, "--json"))
    assert list(found) == ["best-of-n", "voters"]
    assert found["best-of-n"]["optimal"]["regret"][0] == pytest.approx(0, abs=1e-9)
    assert found["best-of-n"]["random"]["regret"][0] > 0
    assert found["best-of-n"]["random"]["parts"]["spawn"] == found["best-of-n"]["random"]["regret"]
    assert found["best-of-n"]["random"]["episodes"] == 5
    assert set(found["voters"]) == {"table"}
    said = typed(capsys, "game", "regret", out)
    assert "best-of-n: V* = 0.582351" in said
    assert "voters: V* = 0.9" in said


def test_fork_a_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = str(tmp_path / "a"), str(tmp_path / "b.jsonl")
    typed(capsys, "run", "game:spawn-bandit", "--policy", "never-spawn", "--out", here)
    typed(capsys, "fork", here, "--at", "orchestrator#1", "--do", "spawn helper: task", "--out", there)
    (before,), (after,) = read_all(here), read_all(there)
    assert before.events[0].extra["step"]["option"] == "stop alone"
    assert after.events[0].extra["step"]["option"] == "spawn helper: task"
    assert after.events[0].type == "spawn"
    found = json.loads(typed(capsys, "game", "regret", there, "--json"))
    assert found["spawn-bandit"]["never-spawn"]["visits"]["spawn"] == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("run", "game:pandorra", "--out", "x"), "Did you mean 'game:pandora'"),
        (("run", "game:pandora", "--policy", "optimall", "--out", "x"), "Did you mean 'optimal'"),
        (("run", "game:pandora", "--topology", "swarm", "--out", "x"), "brings its own team"),
        (("run", "game:pandora", "--set", "costs=1", "--out", "x"), "--set task.costs=VALUE"),
        (("run", "game:pandora", "--set", "task.cots=1", "--out", "x"), "Did you mean 'costs'"),
        (("game", "regret", ".", "--policy", "greedy"), "do not apply"),
    ],
)
def test_mistakes(command: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(command)) == 2
    assert said in capsys.readouterr().err
    assert not Path("x").exists()
