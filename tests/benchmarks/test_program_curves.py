"""The table and the picture of trained programs are what their kept records say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "learning" / "results" / "programs"
ROWS = {
    "plain": "plain Python, seed 0",
    "plain1": "plain Python, seed 1",
    "graph": "LangGraph",
    "handoff": "openai-agents, handoffs",
    "tools": "openai-agents, agents as tools",
}


def test_the_page_prints_what_was_kept() -> None:
    page = (ROOT / "docs" / "serve" / "training.md").read_text("utf-8")
    for name, title in ROWS.items():
        lines = [json.loads(one) for one in (RECORDS / f"{name}.evals.jsonl").read_text().splitlines()]
        found = {line["who"].partition("-")[0]: line for line in lines}
        cells = [
            f"{found[who]['return']['mean']:.2f} ± {found[who]['return']['half']:.2f} ({found[who]['tokens']:.0f})"
            for who in ("untrained", "team", "best", "alone")
        ]
        assert f"| {title} | {' | '.join(cells)} |" in page, title


def test_the_picture_is_drawn_from_what_was_kept(tmp_path: Path) -> None:
    made = tmp_path / "curves.svg"
    command = [sys.executable, "benchmarks/program_curves.py", str(RECORDS), "--out", str(made)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert made.read_text() == (ROOT / "docs" / "images" / "program_training.svg").read_text()
