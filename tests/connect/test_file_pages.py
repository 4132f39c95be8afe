"""The pages on files: their commands run as printed, and what they print is what the page shows."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from baton.cli import main

ROOT = Path(__file__).parents[2]
DOCS, GOLDEN = ROOT / "docs" / "connect", ROOT / "tests" / "golden" / "connect"
# Page -> the file that stands for the reader's own, and what the page calls it.
FILES = {
    "atif.md": ("atif-1.7.json", "trajectory.json"),
    "inspect.md": ("inspect-0.3.285.eval", "cities.eval"),
    "who-and-when.md": ("who-and-when-crafted.json", "1.json"),
    "mast.md": ("mast-ag2.json", "ag2.json"),
    "magentic-one.md": ("magentic-one-console.txt", "console_log.txt"),
    "messages.md": ("messages.json", "talk.json"),
    "claude-code.md": ("claude-code-2.1.325-agents", "my-project"),
    "codex.md": ("codex-0.166.0-v2", "sessions"),
    "otlp.md": ("otlp-pydantic-ai-2.62.0.jsonl", "spans.jsonl"),
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def typed(page: Path) -> None:
    for line in (line for body in blocks(page, "sh") for line in body.splitlines()):
        program, *words = shlex.split(line, comments=True)
        assert program == "baton"
        assert main(words) == 0, line


@pytest.mark.parametrize("page", FILES)
def test_a_page_is_what_it_does(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    golden, name = FILES[page]
    (shutil.copytree if (GOLDEN / golden).is_dir() else shutil.copy)(GOLDEN / golden, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    typed(DOCS / page)
    capsys.readouterr()
    assert main(["show", "runs/mine"]) == 0
    shown = capsys.readouterr().out.rstrip().partition(" ")[2]  # a trace's id may be of where its file stands
    (printed,) = blocks(DOCS / page, "text")
    assert printed.rstrip().partition(" ")[2] == shown


def test_the_index_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(GOLDEN / "atif-1.7.json", tmp_path / "trajectory.json")
    monkeypatch.chdir(tmp_path)
    typed(ROOT / "docs" / "connect.md")


def test_rows_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed(DOCS / "rows.md")


@pytest.mark.parametrize("page", [*FILES, "rows.md", "../connect.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert ((DOCS / page).parent / link).exists(), link


def test_readers_find_the_pages() -> None:
    assert "docs/connect.md" in (ROOT / "README.md").read_text("utf-8")
    index = (ROOT / "docs" / "connect.md").read_text("utf-8")
    for path in DOCS.glob("*.md"):
        assert f"connect/{path.name}" in index, path.name


def test_a_source_without_times_has_no_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zero seconds would be a measurement."""
    talk = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hi."}]
    (tmp_path / "talk.json").write_text(json.dumps(talk))
    assert main(["import", str(tmp_path / "talk.json"), "--out", str(tmp_path / "out")]) == 0
    for command, told in (("show", "times not measured"), ("measure", "seconds a trace     not measured")):
        capsys.readouterr()
        assert main([command, str(tmp_path / "out")]) == 0
        out = capsys.readouterr().out
        assert told in out
        assert "0.00s" not in out
        assert "makespan (s)            0" not in out
