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


def test_examples_run_as_printed_and_training_prints_what_is_shown(tmp_path: Path) -> None:
    """In order, in one folder, as a reader would. The README trains for a few steps what `make train` trains whole."""
    printed = _printed(tmp_path)
    recipe = re.search(r"^\t@\$\(BIN\)/baton train (\w+) ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    assert any(language == "sh" and f"baton train {recipe[1]} " in text for language, text in BLOCKS)
    shown = next(text for language, text in BLOCKS if not language and "held-out" in text)
    shapes = {_shape(line) for line in printed.splitlines()}
    for line in shown.splitlines():
        assert line == "..." or _shape(line) in shapes, line


def _printed(folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
    said = []
    for language, text in BLOCKS:
        if language == "python":
            command = [sys.executable, "-c", text]
        elif language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
        else:
            continue
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout)
    assert len(said) >= 4
    return "".join(said)


def _shape(line: str) -> str:
    """A printed line without its numbers, bars and spaces, and without what a run of a few steps may say besides."""
    line = line.removesuffix("not made any more")
    line = re.sub(r"\S+/report\.html", "report.html", line)
    line = re.sub(r"[+−±]?\d[\d,.]*( %)?", "", line)
    return re.sub(r"[▁▂▃▄▅▆▇█\s–]+", " ", line).strip()


@pytest.mark.parametrize(
    "page", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "design").glob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
