"""The benchmark on real tasks runs, with a model of no sense."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")
pytest.importorskip("torch", reason="needs the extra `torch`")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "real_task.py"


def test_the_untrained_team_is_measured() -> None:
    done = subprocess.run(
        [
            sys.executable, str(SCRIPT), "--measure", "untrained", "--model", "tiny?device=cpu",
            "--families", "chain_sum", "shortest_path", "--instances", "2", "--max-tokens", "4",
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("| family | team | surface | parse rate | success | tokens |")
    rows = [line.strip("| ").split(" | ") for line in lines[2:] if line.startswith("|")]
    assert [(row[0], row[1], row[2]) for row in rows][:4] == [
        ("chain_sum", "small", "lines"), ("chain_sum", "small", "tools"),
        ("chain_sum", "single", "lines"), ("chain_sum", "single", "tools"),
    ]  # fmt: skip
    assert len(rows) == 8
    assert all(row[4].startswith("0.000 [0.000, ") for row in rows)
    read = [row for row in rows if row[:3] == ["chain_sum", "small", "lines"]]
    assert all(row[3].startswith("0.000 [0.000, ") and int(row[5]) > int(row[6]) > 0 for row in read)
    # Its context is too short for the list of functions: no answer at all is not an answer that parses.
    assert all(row[3] == "not measured" for row in rows if row[1:3] == ["small", "tools"])
