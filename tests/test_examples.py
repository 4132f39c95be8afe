"""Every example runs as its reader would run it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from baton.trace.formats import read
from baton.trace.validation import validate

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", path, tmp_path / "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout
    if path.stem == "bare_loop":
        _learns(done.stdout)


def _learns(said: str) -> None:
    """The teaching loop gets better where it was not trained, and does not learn to babble."""
    before, after = (
        float(re.findall(rf"^{when}: return (\S+) of", said, re.MULTILINE)[0]) for when in ("before", "after")
    )
    assert after > before + 0.05
    scores = [float(number) for number in re.findall(r"score +(\S+)", said)]
    assert fmean(scores[-5:]) > fmean(scores[:5])


def test_recording_a_team_takes_less_than_30_lines(tmp_path: Path) -> None:
    path = next(path for path in EXAMPLES if path.stem == "record_a_team")
    source = path.read_text()
    after_docstring = ast.parse(source).body[0].end_lineno or 0
    assert sum(bool(line.strip()) for line in source.splitlines()[after_docstring:]) < 30
    for _ in range(2):  # a second run replaces the first
        subprocess.run([sys.executable, path, tmp_path], check=True, capture_output=True)
    trace = read(tmp_path / "trace.jsonl")
    assert validate(trace) == []
    assert {event.type for event in trace.events} >= {
        "spawn",
        "message",
        "tool_call",
        "tool_result",
        "return",
        "aggregate",
    }
    assert trace.rewards
