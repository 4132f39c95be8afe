"""What the README prints runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_readme_opens_with_what_baton_is_and_the_two_commands() -> None:
    head = README[: README.index("## ")]
    assert "reinforcement learning" in head
    assert "make train\nmake test\n" in head
    for target in ("train", "test", "check"):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_examples_run_as_printed(tmp_path: Path) -> None:
    """In order, in one folder, as a reader would."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    for language, text in BLOCKS:
        if language == "python":
            command = [sys.executable, "-c", text]
        elif language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
        else:
            continue
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran >= 4


def test_make_train_prints_what_the_readme_says(tmp_path: Path) -> None:
    shown = next(text for language, text in BLOCKS if not language and "orchestrator#1" in text)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["sh", str(ROOT / "examples" / "first_run.sh"), str(tmp_path / "first")]
    printed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    printed = [_without_hash(line) for line in printed]
    for line in shown.splitlines():
        assert line == "..." or _without_hash(line) in printed


def _without_hash(line: str) -> str:
    return re.sub(r"[0-9a-f]{40}", "HASH", line)


@pytest.mark.parametrize(
    "page", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "design").glob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
