"""The page on rollout workers: its commands run as printed, through real processes, and give the numbers of one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from baton.cli import main
from baton.learn.recipe import ScalePart
from baton.learn.run.folder import read_lines

PAGE = (Path(__file__).parents[2] / "docs" / "scale" / "workers.md").read_text("utf-8")


def test_its_commands_run(tmp_path: Path, first_weights: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        line for body in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) for line in body.splitlines()
    ]
    assert len(lines) == 2
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "baton"
        assert main(words) == 0, line
    steps = read_lines(tmp_path / "runs" / "two" / "metrics.jsonl")
    assert [step["num_workers"] for step in steps] == [2, 2, 1]
    assert [sorted(step["workers"]) for step in steps[-1:]] == [["0"]]
    told = json.loads((tmp_path / "runs" / "two" / "run.json").read_text())
    assert told["status"] == "finished"


def test_it_names_settings_that_are_there() -> None:
    for name in set(re.findall(r"scale\.(\w+)", PAGE)):
        assert name in ScalePart.__struct_fields__, name
