"""What CONTRIBUTING.md says is so: its paths exist, its snippets run, its checks are there, its examples are short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import baton.testing
from baton.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
SNIPPETS = [body for language, body in BLOCKS if language == "python"]
COMMANDS = [
    line.partition("#")[0].split()
    for language, body in BLOCKS
    if language == "sh"
    for line in body.splitlines()
]
POINTS = (
    "topology",
    "tool",
    "engine",
    "aggregator",
    "surface",
    "task",
    "game",
    "reward",
    "estimator",
    "loss",
    "critic",
    "monitor",
    "trace format",
    "measure",
    "command",
    "paper",
)


def test_every_path_it_names_exists() -> None:
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:md|py))`", prose))
    named |= set(re.findall(r"\]\((?!http)([^)]+)\)", prose))
    beside = ROOT / "src" / "baton" / "trace" / "formats"  # "`detect.py` and `files.py` there"
    missing = sorted(name for name in named if not (ROOT / name).exists() and not (beside / name).exists())
    assert len(named) > 15
    assert missing == []


def test_every_extension_point_has_its_row_and_a_check_that_exists() -> None:
    rows = {row.split("|")[1].strip(): row for row in TEXT.splitlines() if row.startswith(("| a ", "| an "))}
    assert {name.split(" ", 1)[1] for name in rows} == set(POINTS)
    checks = re.findall(r"`(check_\w+)`", TEXT)
    assert len(checks) >= 7
    for check in checks:
        assert callable(getattr(baton.testing, check))
        assert check in baton.testing.__all__


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SNIPPETS[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_commands_work_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = [words[1:] for words in COMMANDS if words[:1] == ["baton"]]
    assert typed
    for words in typed:
        assert main(words) == 0


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {a or b for a, b in named} <= targets


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("my_*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_calls_its_check(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) < 100
    assert f"check_{path.stem.removeprefix('my_')}(" in source
    assert path.relative_to(ROOT).as_posix() in TEXT
