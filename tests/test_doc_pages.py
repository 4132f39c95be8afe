"""Pages whose programs and commands run as printed, in order, in one folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.team.team import _PLACES, TEMPLATE
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["recorder.md", "requests.md", "templates.md"])
def test_programs_and_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    programs = [body for language, body in blocks if language == "python"]
    assert programs
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for line in (line for language, body in blocks if language == "sh" for line in body.splitlines()):
        program, *words = shlex.split(line, comments=True)
        assert program == "baton"
        assert main(words) == 0, line


@pytest.mark.parametrize("page", ["recorder.md", "requests.md", "templates.md", "tasks.md", "training.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (DOCS / link).exists(), link
    for example in re.findall(r"`(examples/\w+\.py)`", text):
        assert (DOCS.parent / example).exists(), example


def test_the_page_on_templates_has_every_place_and_the_template_that_is_used() -> None:
    text = (DOCS / "templates.md").read_text("utf-8")
    assert TEMPLATE in text
    assert re.findall(r"^\| `\{(\w+)\}`", text, re.MULTILINE) == list(_PLACES)


def test_the_page_on_the_recorder_names_verbs_that_are_there() -> None:
    text = (DOCS / "recorder.md").read_text("utf-8")
    for owner, kind in (("team", Recorder), ("agent", RecordedAgent)):
        for verb in set(re.findall(rf"`(?:with )?{owner}\.(\w+)\(", text)):
            assert callable(getattr(kind, verb)), verb


def test_the_pages_are_linked_from_where_a_reader_comes() -> None:
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    for page in ("recorder.md", "requests.md", "templates.md"):
        assert f"(docs/{page})" in readme
        assert f"({page})" in (DOCS / "api.md").read_text("utf-8")
