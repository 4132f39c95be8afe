"""Pages whose commands run as printed, in order, in one folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from baton.cli import main

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["teams.md", "corpus.md"])
def test_commands_run_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 5
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        assert program == "baton"
        if words == ["advise"]:
            continue  # it asks a person
        assert main(words) == 0, line
