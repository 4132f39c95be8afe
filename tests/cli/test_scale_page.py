"""The page on what is past one process: what it prints runs, what it names is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from baton.cli import doctor, main
from baton.compose.doctor.diagnosis import Diagnosis
from baton.learn.recipe import parse

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "scale.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LINES = [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]


def test_the_doctor_says_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "torch", lambda: [Diagnosis(part="gloo", state="ok", said="")])
    (line,) = [line for line in LINES if line.startswith("baton doctor")]
    assert main(shlex.split(line)[1:]) == 0
    assert "nothing is in the way" in capsys.readouterr().out


def test_training_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in LINES if line.startswith("baton train")]
    assert lines
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0


def test_the_recipe_is_one() -> None:
    (text,) = [body for language, body in BLOCKS if language == "toml"]
    recipe = parse(text)
    assert (recipe.scale.rollout_workers, recipe.scale.lag) == (2, 1)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)", PAGE):
        assert (DOCS / link).exists(), link
    assert "(docs/scale.md)" in (DOCS.parent / "README.md").read_text("utf-8")
