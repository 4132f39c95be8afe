from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.trace.formats.jsonl import read_jsonl
from baton.trace.recorder import Recorder

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "v1").glob("*.jsonl"))
SURVEY = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey" / "example_trace.json"


def show(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out


@pytest.fixture
def long_trace(tmp_path: Path) -> Path:
    path = tmp_path / "long.jsonl"
    with Recorder(path, task_id="t") as team:
        lead = team.agent("lead")
        for number in range(1000):
            lead.decide("continue", f"step {number}")
    return path


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_traces(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = show(capsys, path, "--events")
    (trace,) = read_jsonl(path)
    assert out.startswith(f"golden-{path.stem}  task ")
    for event in trace.events:
        assert f"─ {event.id} " in out
    assert "left out" not in out
    assert "\x1b" not in out
    assert out == show(capsys, path, "--events"), "the same every time"


def test_the_survey_s_example(capsys: pytest.CaptureFixture[str]) -> None:
    if not SURVEY.exists():
        pytest.skip("the survey's example trace is not beside this checkout")
    out = show(capsys, SURVEY)
    assert "planner_1 (planner)" in out
    assert "tool_result browser.search <result_hash> untrusted" in out


def test_folding_names_the_flag_that_undoes_it(long_trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = show(capsys, long_trace)
    assert "of 1,000 events left out. Add --events for all" in out
    assert "step 500" not in out
    assert "step 500" in show(capsys, long_trace, "--events")


def test_several_traces_are_listed_or_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two traces.jsonl"
    for trace_id in ("one", "two"):
        with Recorder(path, task_id="t", trace_id=trace_id) as team:
            team.agent(f"agent-{trace_id}").stop()
    out = show(capsys, path)
    assert "  two  task t  unknown  1 event\n" in out
    assert f"Type: baton show '{path}' --trace one" in out
    assert "agent-two" in show(capsys, path, "--trace", "two")
    assert main(["show", str(path), "--trace", "tow"]) == 2
    assert "has no trace 'tow'. Did you mean 'two'?" in capsys.readouterr().err


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "text.jsonl").write_text("hello")
    for args in (
        ["missing.jsonl"],
        [tmp_path / "empty.jsonl"],
        [tmp_path / "text.jsonl"],
        [GOLDEN[0], "--agent", "x"],
    ):
        assert main(["show", *map(str, args)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.splitlines()) == 1
    for args in (["--width", "3"], ["--depth", "-1"], ["--depth", "two"]):
        with pytest.raises(SystemExit, match="2"):
            main(["show", str(GOLDEN[0]), *args])
        assert "whole number" in capsys.readouterr().err


def test_a_live_or_cut_off_trace_is_shown_as_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.db"
    team = Recorder(path, task_id="t", trace_id="live")
    team.agent("lead").spawn("w")
    assert "unfinished" in show(capsys, path)
    team.close()


def test_a_pipe_that_cannot_carry_every_character(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "baton", "show", str(GOLDEN[0])]
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    assert b"lead (orchestrator)" in done.stdout
    assert done.stdout.isascii()


def in_terminal(*args: str) -> bytes:
    """What a person sees: the command run in a terminal of its own."""
    here, there = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "90"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "baton", *args], stdout=there, stdin=there, stderr=there, env=env
    )
    os.close(there)
    seen = b""
    while True:
        try:
            some = os.read(here, 65536)
        except OSError:  # the other end is closed
            break
        if not some:
            break
        seen += some
    os.close(here)
    assert process.wait() == 0
    return seen


def test_a_terminal_gets_colours_and_a_trace_cannot_add_any(tmp_path: Path) -> None:
    path = tmp_path / "nasty.jsonl"
    with Recorder(path, task_id="t") as team:
        lead = team.agent("lead\x1b]0;title\x07")
        lead.spawn("[red]w[/red]", task="\x1b[2J[bold]hi[/bold] :smile: \x9b1m \u202e")
        lead.stop("[link=http://x]y[/link]")
    seen = in_terminal("show", str(path))
    assert b"\x1b[" in seen
    for forbidden in (b"\x1b]", b"\x1b[2J", b"\x07", "\x9b".encode(), "\u202e".encode()):
        assert forbidden not in seen
    for literal in (
        rb"lead\e]0;title\x07",
        b"[red]w[/red]",
        rb"\e[2J[bold]hi[/bold] :smile: \x9b1m \u202e",
        b"[link=http://x]y[/link]",
    ):
        assert literal in seen
