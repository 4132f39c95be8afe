"""How a program came to its end is what its trace says: by a fault of its own, or because somebody stopped it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from cli_runs import hears_interrupts

from baton.cli import main
from baton.serve.journal import journal_path, read_session
from baton.trace.formats.files import read
from baton.trace.outcome import answer_of, cut_off
from baton.trace.validation import validate

PROGRAM = textwrap.dedent(
    """
    import json, os, sys, time, urllib.request
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "what is left?"}]}).encode()
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    asked = urllib.request.Request(address, body, {"content-type": "application/json"})
    print(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"], flush=True)
    time.sleep(float(sys.argv[2]))
    sys.exit(int(sys.argv[1]))
    """
)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def command(*how: str) -> list[str]:
    served = ["serve", "--engine", "scripted:echo", "--out", "kept", "--session", "odd.one"]
    return [*served, "--", sys.executable, "program.py", *how]


def test_a_program_that_fails_after_its_lead_had_answered_is_said_to_have_failed(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("7", "0")) == 7
    trace = read(program / "kept" / "odd.one.jsonl")
    assert validate(trace) == []
    last = max(trace.events, key=lambda event: event.seq)
    assert (last.decision, last.status) == ("stop", "failed")
    assert [event.decision for event in trace.events if event.call is not None] == ["continue"]
    assert answer_of(trace) is None
    assert not cut_off(trace)
    assert main(["show", "kept/odd.one.jsonl"]) == 0
    told = capsys.readouterr().out
    assert "ended  main failed: the program ended with exit code 7" in told


def test_one_that_ends_well_stopped(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("0", "0")) == 0
    assert main(["show", "kept/odd.one.jsonl"]) == 0
    assert "ended  main stopped" in capsys.readouterr().out


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_person_who_stops_it_leaves_a_whole_trace(program: Path, how: signal.Signals, code: int) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "baton", *command("0", "60")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=hears_interrupts,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "what is left?\n"
    time.sleep(0.2)
    running.send_signal(how)
    _, told = running.communicate(timeout=30)
    assert running.returncode == code, told
    assert "Traceback" not in told
    end = read_session(journal_path(program / "kept", "odd.one")).ended
    assert end is not None
    assert (end.status, end.why) == ("cut", f"it was stopped by {how.name}")
    trace = read(program / "kept" / "odd.one.jsonl")
    assert trace.finished
    assert cut_off(trace)
    assert "odd.one.jsonl" in told, "where the trace is"
