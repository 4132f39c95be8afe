"""The pages on services and bridges: what they print runs as it is printed; the service is a mock, named so."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tinker_mock import MockService
from warm_folder import warm_folder

from baton.cli import main

DOCS = Path(__file__).parents[2] / "docs" / "scale"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed(page: str) -> None:
    for line in (line for body in blocks(page, "sh") for line in body.splitlines()):
        program, *words = shlex.split(line, comments=True)
        assert program == "baton"
        assert main(words) == 0, line


def test_a_service_is_trained_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    model, _ = warm_folder(tmp_path / "models" / "base")
    [recipe] = blocks("tinker.md", "toml")
    assert "http://127.0.0.1:8000" in recipe
    with MockService(model, "models/base", means=True, clips=False) as service:
        Path("service.toml").write_text(recipe.replace("http://127.0.0.1:8000", service.at))
        typed("tinker.md")


def test_bridges_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    typed("bridges.md")
    [program] = blocks("bridges.md", "python")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "rollouts" / "step_1" / "rank_1.bin").is_file()


@pytest.mark.parametrize("page", ["tinker.md", "bridges.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (DOCS / link).exists(), link
    for example in re.findall(r"examples/[\w/]+\.py", text):
        assert (DOCS.parents[1] / example).exists(), example
