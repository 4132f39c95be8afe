"""The three depths: a bare loop, a short recipe, the engine behind both. The first is run with all other examples."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from baton.cli import main

ROOT = Path(__file__).parents[2]


def test_the_bare_loop_is_short() -> None:
    text = (ROOT / "examples" / "bare_loop.py").read_text()
    assert len(text.splitlines()) < 150
    assert "baton.learn.trainer" not in text


def test_the_short_recipe_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(ROOT)
    text = (ROOT / "examples" / "my_recipe.toml").read_text()
    said = re.search(r"^# Type: baton (.*)$", text, re.MULTILINE)
    assert said is not None
    settings = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(settings) <= 30
    assert main([*shlex.split(said[1]), "--out", str(tmp_path / "run")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "evals.jsonl").read_text().splitlines()]
    by_who = {line["who"]: line for line in lines}
    before, after = (by_who[who]["regret"]["total"] for who in ("untrained", "team"))
    assert after < 0.5 * before
