"""`baton resume`: after a kill, with nothing to do, and with a person's word."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from cli_runs import SLOW_RUN, VIRTUAL_RUN, made, started, traces

from baton.cli import main
from baton.trace.canonical import canonical_hash
from baton.trace.trace import Trace
from baton.trace.validation import validate


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a run was killed with SIGKILL halfway, and its script can be imported."""
    process = started(tmp_path, SLOW_RUN, until_events=4)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "slow_play", raising=False)
    return tmp_path / "out"


def test_a_killed_run_is_finished(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (before,) = traces(killed)
    assert not before.finished
    assert main(["resume", str(killed), "--trust"]) == 0
    out = capsys.readouterr().out
    assert f"{len(before.events)} events were there" in out
    assert "reward   shared 1" in out
    assert main(["validate", str(killed)]) == 0
    assert main(["replay", str(killed)]) == 0
    (after,) = traces(killed)
    assert after.finished
    assert after.events[: len(before.events)] == before.events  # nothing is done again, nothing is lost


@pytest.mark.parametrize(("played", "events"), [(0, 0), (1, 4)])
def test_what_a_slow_model_said_is_kept_on_a_virtual_clock_too(
    played: int, events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(tmp_path, VIRTUAL_RUN, until_events=events, played=played)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "slow_play", raising=False)
    (before,) = traces(tmp_path / "out")
    assert not before.finished
    assert main(["resume", str(tmp_path / "out"), "--trust"]) == 0
    (after,) = traces(tmp_path / "out")
    assert after.finished
    assert after.events[: len(before.events)] == before.events
    assert main(["replay", str(tmp_path / "out")]) == 0


def test_the_end_is_that_of_a_run_that_was_never_killed(killed: Path, tmp_path: Path) -> None:
    assert main(["resume", str(killed), "--trust"]) == 0
    made(tmp_path / "whole", "--policy", "scripted:slow_play:play", "--clock", "real")
    (after,), (whole,) = traces(killed), traces(tmp_path / "whole")

    def said(trace: Trace) -> set[tuple[str, str, str | None]]:
        return {(e.id, e.type, trace.text(e.content_ref)) for e in trace.events}

    assert said(after) == said(whole)


def test_a_person_can_instruct_what_is_resumed(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(killed), "--trust", "--instruct", "orchestrator=be quick"]) == 0
    (after,) = traces(killed)
    (word,) = [e for e in after.events if e.type == "human_intervention"]
    assert after.text(word.content_ref) == "be quick"
    read = [after.text(c.prompt_ref) or "" for c in after.calls if c.agent == "orchestrator"]
    assert sum("instruction: be quick" in text for text in read) == 1
    assert validate(after) == []
    assert main(["replay", str(killed)]) == 0


@pytest.mark.parametrize(
    ("instruct", "told"),
    [("nobody=hello", "there is no agent 'nobody'"), ("hello", "Type: --instruct AGENT=TEXT")],
)
def test_an_instruction_that_cannot_be_given(
    killed: Path, instruct: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (before,) = traces(killed)
    assert main(["resume", str(killed), "--trust", "--instruct", instruct]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert traces(killed) == [before]


def test_only_what_is_unfinished_is_resumed(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(killed, "--seed", "5")
    finished = traces(killed)[1]
    capsys.readouterr()
    assert main(["resume", str(killed), "--trust"]) == 0
    assert "shard-sum-centralized-5" not in capsys.readouterr().out
    assert canonical_hash(traces(killed)[1], times=True) == canonical_hash(finished, times=True)


def test_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    before = traces(tmp_path)
    capsys.readouterr()
    assert main(["resume", str(tmp_path)]) == 0
    assert "Nothing to resume" in capsys.readouterr().out
    assert traces(tmp_path) == before


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nowhere"], "there is no run in nowhere"),
        (["out", "--trace", "shard-sum-x"], "no trace 'shard-sum-x'"),
    ],
)
def test_mistakes(
    args: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    made(Path("out"))
    capsys.readouterr()
    assert main(["resume", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
