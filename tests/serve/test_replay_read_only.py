"""A program over an overlay of its folder: it writes, and nothing is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from baton.errors import UsageError
from baton.serve.program_run import run_program_here
from baton.serve.replay import read_only as module
from baton.serve.replay.read_only import overlay_refusal, read_only

WRITES = "open('new', 'w').write('x'); import os; os.remove('old'); print(sorted(os.listdir('.')))"


@pytest.mark.skipif(overlay_refusal() is not None, reason="no overlay on this machine")
def test_what_a_program_writes_into_its_folder_is_gone_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "wörk space"
    folder.mkdir()
    (folder / "old").write_text("kept")
    with read_only([sys.executable, "-S", "-c", WRITES], folder) as command:
        ran = run_program_here(command, address="http://127.0.0.1:9", session="s", cwd=folder)
    assert (ran.exit_code, ran.text) == (0, "['new']\n")
    assert [path.name for path in folder.iterdir()] == ["old"]


def test_without_an_overlay_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "overlay_refusal", lambda: "the kernel says no")
    with (
        pytest.raises(UsageError, match=r"the kernel says no. Nothing was run"),
        read_only(["true"], tmp_path),
    ):
        raise AssertionError


def test_a_folder_that_an_overlay_cannot_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "overlay_refusal", lambda: None)
    with pytest.raises(UsageError, match="comma"), read_only(["true"], tmp_path / "a,b"):
        raise AssertionError
