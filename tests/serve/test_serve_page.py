"""docs/serve.md: its program, rules and commands run as printed, in order, in one folder."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from baton.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def blocks(language: str) -> list[str]:
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python")
    Path("my_agent.py").write_text(program)
    (rules,) = blocks("json")
    Path("rules.jsonl").write_text(rules)
    lines = [line for block in blocks("sh") for line in block.splitlines() if not line.startswith("pip ")]
    assert len(lines) >= 3
    for line in lines:
        words = [sys.executable if word == "python" else word for word in shlex.split(line)]
        assert words[0] == "baton"
        assert main(words[1:]) == 0, line
    out = capfd.readouterr().out
    assert out.count("The Eiffel tower: 330 m against 96 m.\n") >= 2
    for shown in re.findall(r"inferred: ([^\n]+)", PAGE.read_text("utf-8")):
        assert shown in out, shown
    assert "identical" in out


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / link).exists(), link
