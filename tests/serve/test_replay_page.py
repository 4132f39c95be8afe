"""docs/serve/replay.md: its programs and commands run as printed, in order, in one folder."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.serve.replay.masks import read_masks

PAGE = Path(__file__).parents[2] / "docs" / "serve" / "replay.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    program, model = blocks("python")
    Path("guess.py").write_text(program)
    Path("model.py").write_text(model)
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 5
    said = []
    for line in lines:
        words = [sys.executable if word == "python" else word for word in shlex.split(line)]
        assert words[0] == "baton"
        assert main(words[1:]) == 0, line
        said.append(capfd.readouterr().out)
    for out in said[1:3]:
        assert re.search(r"replayed 4 of 4 calls: 1 exactly, 3 under masks", out)
        assert "identical: 2" in out
    assert "again    calls: 1 ran, 2 of 4 were reused (50%)" in said[3]
    assert re.search(r"outcome  The guesses add up to \[-\d+-\]\{\+1\d\d\+\}\.; exit code 0", said[3])
    assert said[4].count("serve-run-1  message") == 4
    sys.modules.pop("model", None)


def test_the_masks_of_the_page_can_be_read(tmp_path: Path) -> None:
    (masks,) = blocks("toml")
    path = tmp_path / "masks.toml"
    path.write_text(masks)
    found = read_masks(path)
    assert found.every[0].ids
    assert "handle" in found.name_fields
    assert "progress" in found.notes
