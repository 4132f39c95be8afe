"""What commands print arrives whole wherever it goes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from baton.trace.recorder import Recorder


@pytest.fixture
def named_abroad(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "trace.jsonl", task_id="é→", trace_id="名前") as team:
        team.agent("Zoë").stop("→")
    return tmp_path / "trace.jsonl"


def baton(*args: object) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "baton", *map(os.fspath, args)]
    return subprocess.run(command, env=environment, capture_output=True, check=False)


def test_a_pipe_that_takes_only_ascii_gets_text_with_escapes(named_abroad: Path) -> None:
    for command in (("show",), ("stats",), ("validate",)):
        done = baton(*command, named_abroad)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.isascii()
    done = baton("query", named_abroad, "SELECT agent FROM events")
    assert done.stdout == b"agent\nZo\\xeb\n"


def test_a_closed_output_is_no_error(named_abroad: Path) -> None:
    for command in (("show",), ("stats", "--json"), ("validate",), ("measure",)):
        typed = shlex.join([sys.executable, "-m", "baton", *command, str(named_abroad)])
        done = subprocess.run(["sh", "-c", f"{typed} >&-"], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_data_is_utf_8_everywhere(named_abroad: Path, tmp_path: Path) -> None:
    (found,) = json.loads(baton("stats", "--json", named_abroad).stdout)["traces"]
    assert found["trace_id"] == "名前"
    assert json.loads(baton("query", "--json", named_abroad, "SELECT agent FROM events").stdout) == [
        {"agent": "Zoë"}
    ]
    done = baton("query", "--csv", named_abroad, "SELECT agent FROM events")
    assert done.stdout.decode() == "agent\nZoë\n"
    bad = tmp_path / "bad.jsonl"
    bad.write_text(named_abroad.read_text().replace("orchestrator_decision", "décision"))
    done = baton("validate", "--json", bad)
    assert done.returncode == 1
    assert json.loads(done.stdout)["files"][0]["problems"][0]["found"] == "'décision'"


def test_a_file_name_that_is_no_text_is_still_reported_as_json(named_abroad: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")
    assert baton("validate", "--json", path).returncode == 2
    named_abroad.rename(path)
    done = baton("validate", "--json", path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["files"][0]["path"].endswith("\\udcff.jsonl")
