"""Every row of docs/survey.md has a command that runs and prints what the row says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from baton.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "survey.md").read_text("utf-8")
ROW = re.compile(
    r"^\| (?P<where>[^|]+) \| (?P<what>[^|]+) \| `baton (?P<command>[^`]+)` \| (?P<said>[^|]+) \|$", re.M
)


def test_every_row_is_shown_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S):
        for line in block.splitlines():
            assert main(shlex.split(line)[1:]) == 0, line
    capsys.readouterr()
    rows = list(ROW.finditer(PAGE))
    assert len(rows) == PAGE.count("| `baton "), "a row that this test does not read"
    assert len(rows) > 35
    printed: dict[str, str] = {}
    for row in rows:
        command = row["command"]
        if command not in printed:
            try:
                code = main(shlex.split(command))
            except SystemExit as end:  # --help
                code = int(end.code or 0)
            seen = capsys.readouterr()
            assert code == 0, (command, seen.err)
            printed[command] = seen.out + seen.err
        assert row["said"].strip() in printed[command], (row["where"], row["what"], command)
