"""Tasks and games by name: shipped, one's own by `module:attr`, and a prompt in one line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.games.game_trace import played
from baton.tasks.catalog import TASKS, check_task_trusted, make_task
from baton.tasks.task import Task
from baton.team.running import run
from baton.team.team import Team
from baton.team.topology import make_topology


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).parents[2] / "examples"
    (tmp_path / "own_tasks.py").write_text(
        "from my_game import Coin\nfrom my_task import Hotter\n\n\nclass Mine(Hotter):\n    name = 'mine'\n\n"
        "    def __init__(self, note: str = '') -> None:\n        super().__init__()\n        self.note = note\n\n\n"
        "made = Mine()\n"
    )
    monkeypatch.syspath_prepend(str(examples))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("own_tasks", "my_game", "my_task"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("own_package")
def test_an_own_task_runs_by_its_reference_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_task("own_tasks:Mine", note="x").note == "x"  # type: ignore[attr-defined]
    assert make_task("own_tasks:made") is make_task("own_tasks:made")
    assert main(["run", "own_tasks:Mine", "--out", str(tmp_path / "out")]) == 0
    assert "reward   shared 1" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"no setting 'nte'\. Did you mean 'note'"):
        make_task("own_tasks:Mine", nte="x")
    with pytest.raises(UsageError, match="is made already"):
        make_task("own_tasks:made", note="x")
    with pytest.raises(UsageError, match="expected a Task"):
        make_task("own_tasks:Coin")


@pytest.mark.usefixtures("own_package")
def test_an_own_game_is_solved_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "solve", "own_tasks:Coin", "--set", "max_tosses=2"]) == 0
    assert "coin: V* =" in capsys.readouterr().out
    task = make_task("game:own_tasks:Coin", max_tosses=2)
    assert task.name == "game:own_tasks:Coin"
    assert main(["run", "game:own_tasks:Coin", "--policy", "optimal", "--out", str(tmp_path / "out")]) == 0
    topology = task.topology()
    assert topology is not None
    team = Team.of(topology, ScriptedEngine("optimal", task.script("optimal")))  # type: ignore[attr-defined]
    trace = asyncio.run(run(team, task.assignment(task.instance(0))))
    assert played(trace, task.game).steps  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="would import the Python module 'own_tasks'"):
        played(trace)  # the trace says so, and nobody vouched for it


@pytest.mark.parametrize("name", ["other_pkg:Theirs", "game:other_pkg:Theirs"])
def test_a_file_cannot_have_a_module_imported(name: str) -> None:
    with pytest.raises(UsageError, match="would import the Python module 'other_pkg'"):
        check_task_trusted(name, "trace 'x'")


def test_shipped_names_need_no_trust_and_wrong_ones_are_named() -> None:
    for name in TASKS:
        check_task_trusted(name, "trace 'x'")
    with pytest.raises(UsageError, match="Did you mean 'game:pandora'"):
        make_task("game:pandoraa")


@pytest.mark.parametrize(("answer", "reward"), [("42.", 1.0), ("41", 0.0)])
def test_a_prompt_is_a_task(answer: str, reward: float) -> None:
    task = Task.of("What is 6 x 7?", verify="42", task_id="six-seven")
    team = Team.of(make_topology("centralized"), ScriptedEngine("says", lambda _: f"stop {answer}"))
    trace = asyncio.run(run(team, task.assignment(task.instance(0))))
    assert trace.header.task_id == "six-seven/train/0"
    assert [each.value for each in trace.rewards] == [reward]


def test_a_prompt_without_a_verifier_rewards_nobody() -> None:
    task = Task.of("Say something.")
    team = Team.of(make_topology("centralized"), ScriptedEngine("says", lambda _: "stop hello"))
    assert not asyncio.run(run(team, task.assignment(task.instance(0)))).rewards
