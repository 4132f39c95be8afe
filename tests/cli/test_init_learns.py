"""The project that `baton init` writes, trained by the line that it prints: it learns, in under a minute of a core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_init import typed, written

pytest.importorskip("torch", reason="training needs torch: pip install 'baton-rl[train]'")


def test_the_project_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "p"
    _, _, train, test = written(folder, "lost-keys", capsys)
    assert "4 passed" in typed(folder, f"{test} -p no:cacheprovider")
    typed(folder, train, XDG_CACHE_HOME=str(tmp_path / "cache"))
    lines = [json.loads(line) for line in (folder / "runs/trained/evals.jsonl").read_text().splitlines()]
    before, after = (next(line for line in lines if line["who"] == who) for who in ("untrained", "team"))
    assert after["return"]["mean"] > before["return"]["mean"] + 0.15
