"""reasoning-gym's tasks from the command line: run, and what the split was worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")

from baton.cli import main


def test_run_and_reward_know_the_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["run", "reasoning:word_sorting", "--surface", "tools", "--seed", "3", "--out", out]) == 0
    assert "reward   shared 1" in capsys.readouterr().out
    recipe = tmp_path / "split.toml"
    recipe.write_text('about = "The split alone"\n[[rules]]\nrule = "split"\n')
    assert main(["reward", f"{out}/run.db", "--recipe", str(recipe), "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["traces"][0]["rewards"]
    assert (record["channel"], record["value"]) == ("split", 1.0)


def test_another_team_may_work_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = ["reasoning:chain_sum", "--set", "task.team=any", "--policy", "scripted:echo"]
    assert main(["run", *task, "--topology", "debate", "--out", str(tmp_path / "a")]) == 0
    assert main(["run", "reasoning:chain_sum", "--topology", "debate", "--out", str(tmp_path / "b")]) == 2
    assert "brings its own team" in capsys.readouterr().err


def test_a_wrong_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (
        ("task.team=smal", "Did you mean 'small'?"),
        ("task.size=1", "expected a size of at least 2"),
        ("task.siz=5", "Did you mean 'size'?"),
    ):
        assert main(["run", "reasoning:chain_sum", "--set", given, "--out", str(tmp_path)]) == 2
        assert said.lower() in capsys.readouterr().err.lower()
