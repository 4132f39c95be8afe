"""`baton serve`: a program runs as it is, and its trace is there afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import pytest

from baton.cli import main
from baton.trace.formats.files import read

AGENT = textwrap.dedent(
    """
    import json, os, sys, urllib.request
    def ask(system, text):
        said = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        body = json.dumps({"model": "m", "messages": said}).encode()
        key = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        answer = urllib.request.urlopen(urllib.request.Request(url, body, key))
        return json.load(answer)["choices"][0]["message"]["content"]
    plan = ask("You plan.", sys.argv[1])
    print(ask("You work.", plan))
    sys.exit(int(sys.argv[2]))
    """
)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def served(*words: str) -> int:
    return main(["serve", "--engine", "scripted:echo", "--out", "runs", *words])


def test_a_program_as_a_session(agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert served("--", sys.executable, "agent.py", "vad är det?", "3") == 3
    out, err = capfd.readouterr()
    assert out == "vad är det?\n"
    assert "2 calls" in err
    assert "baton show runs/run-1.jsonl" in err
    trace = read(agent / "runs" / "run-1.jsonl")
    assert len(trace.calls) == 2
    assert served("--", sys.executable, "agent.py", "again", "0") == 0
    assert (agent / "runs" / "run-2.jsonl").exists()


def test_a_limit_ends_the_program(agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert served("--limit", "calls=1", "--session", "short", "--", sys.executable, "agent.py", "x", "0") != 0
    assert "410" in capfd.readouterr().err
    assert len(read(agent / "runs" / "short.jsonl").calls) == 1


def test_a_program_that_asks_nothing_is_told_how(agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert served("--", sys.executable, "-c", "print('hi')") == 0
    assert "asked nothing here" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "tokens"], "Expected NAME=N"),
        (["--limit", "tokens=many"], "'many' is no number"),
        (["--limit", "calls=0"], "more than 0"),
        (["--limit", "toknes=3"], "tokens, calls, agents, seconds"),
        (["--session", "x"], "names the session of a COMMAND"),
        (["--session", "../x", "--", "true"], "no name of a session"),
        (["--host", "0.0.0.0"], "this machine only"),
        (["--port", "99999"], "0 to 65535"),
        (["--", "no-such-program-here"], "there is no program"),
        (["--max-megabytes", "0"], "1 or more"),
        (["--engine", "skripted:echo"], "scripted"),
        (["--engine", "torch:nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_told(
    agent: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert served(*words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_session_that_has_calls_is_not_mixed_with_another(
    agent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--session", "mine", "--", sys.executable, "agent.py", "x", "0")
    assert served(*words) == 0
    assert served(*words) == 2
    assert "has calls already" in capfd.readouterr().err


def test_it_serves_until_it_is_told_to_end(agent: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "baton",
        "serve",
        "--engine",
        "scripted:echo",
        "--out",
        "runs",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline().replace(",", " "))
        assert address is not None
        body = {"model": "m", "messages": [{"role": "user", "content": "hej"}]}
        answer = httpx.post(f"{address[0]}/s/one/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "hej"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait() == 0
    assert "1 session, 1 call" in rest
    assert len(read(agent / "runs" / "one.jsonl").calls) == 1


def test_traces_that_a_killed_server_was_behind_with(agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert served("--session", "one", "--", sys.executable, "agent.py", "x", "0") == 0
    trace = agent / "runs" / "one.jsonl"
    before = trace.read_bytes()
    trace.unlink()
    assert main(["stats", "runs"]) == 2
    assert "baton serve --rebuild --out runs" in capsys.readouterr().err
    assert main(["serve", "--rebuild", "--out", "runs"]) == 0
    assert trace.read_bytes() == before
    assert main(["stats", "runs"]) == 0
    assert main(["show", "runs/sessions/one.jsonl"]) == 2
    assert "Type: runs/one.jsonl" in capsys.readouterr().err
    assert main(["serve", "--rebuild", "--out", "elsewhere"]) == 2
