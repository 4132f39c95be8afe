"""How a session ended is kept whoever said so first, and a replay says identical of what it has compared."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from baton.cli import main
from baton.trace.formats.files import read

PROGRAM = textwrap.dedent(
    """
    import json, os, sys, urllib.error, urllib.request
    def post(url, body):
        asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(asked))
    how, says, code = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for number in range(3):
        messages = [{"role": "user", "content": f"question {number % 2}"}]
        try:
            post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "m", "messages": messages})
        except urllib.error.HTTPError as error:
            if says == "refusals":
                print(error.code, error.read().decode())
    if how == "ends":
        post(os.environ["BATON_SESSION_URL"] + "/end", {"answer": "its own word"})
    if how == "again":
        post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "m", "messages": messages})
    print(says)
    sys.exit(code)
    """
)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def typed(*words: str) -> int:
    """What precedes `--`, then how the program ends."""
    place = words.index("--")
    return main([*words[: place + 1], sys.executable, "program.py", *words[place + 1 :]])


def recorded(*how: str) -> int:
    return typed("serve", "--engine", "scripted:echo", "--out", "kept", *how)


def test_the_output_of_a_program_that_ends_its_session_itself_is_compared(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert recorded("--", "ends", "hello", "0") == 0
    assert typed("replay", "kept", "--", "ends", "hello", "0") == 0
    assert typed("replay", "kept", "--", "ends", "goodbye", "0") == 1
    assert typed("replay", "kept", "--", "ends", "hello", "7") == 1
    trace = read(program / "kept" / "run-1.jsonl")
    assert trace.header.meta["answer"] == "its own word"


def test_a_limit_is_named_by_the_trace_and_nobody_is_given_words_it_never_said(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert recorded("--limit", "calls=2", "--", "cut", "gave up", "3") == 3
    trace = read(program / "kept" / "run-1.jsonl")
    stop = trace.events[-1]
    assert (stop.status, trace.text(stop.content_ref)) == ("forced", "gave up\n")
    assert main(["show", "kept/run-1.jsonl"]) == 0
    assert "forced to stop: the session has made its 2 calls" in capfd.readouterr().out


@pytest.mark.parametrize("limit", ["calls=2", "calls=1", "tokens=9"])
def test_a_session_that_ended_at_a_limit_is_replayed_to_its_end(
    limit: str, program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert recorded("--limit", limit, "--", "cut", "refusals", "3") == 3
    first = capfd.readouterr().out
    assert "has ended" in first
    assert typed("replay", "kept", "--", "cut", "refusals", "3") == 0
    again = capfd.readouterr().out
    assert again.startswith(first)
    assert again.rstrip().endswith("identical")
    assert typed("replay", "kept", "--", "cut", "other", "3") == 1


def test_a_question_asked_once_too_often_is_called_so(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert recorded("--", "plain", "hello", "0") == 0
    assert typed("replay", "kept", "--", "again", "hello", "0") == 1
    said = capfd.readouterr().out
    assert "DIFFERENT call 4 was recorded 2 times and is asked once more" in said


def test_a_fork_whose_call_does_not_come_up_says_that_nothing_was_changed(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert recorded("--", "plain", "hello", "0") == 0
    (program / "program.py").write_text(PROGRAM.replace("range(3)", "range(2)"))
    assert typed("fork", "kept", "--at", "3", "--replace", "x", "--", "plain", "hello", "0") == 1
    said = capfd.readouterr().out
    assert "unchanged" in said
    assert "\nchanged" not in said


def test_a_served_session_is_replayed_with_its_program(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert recorded("--", "plain", "hello", "0") == 0
    capfd.readouterr()
    assert main(["replay", "kept"]) == 2
    assert "-- COMMAND" in capfd.readouterr().err
    assert main(["fork", "kept", "--at", "1", "--replace", "x", "--out", "there"]) == 2
    assert "-- COMMAND" in capfd.readouterr().err


def test_a_program_that_crashed_is_not_told_of_addresses(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["serve", "--engine", "scripted:echo", "--out", "kept", "--", sys.executable, "-c", "1/0"]) == 1
    )
    said = capfd.readouterr().err
    assert "the program ended with exit code 1 and had asked nothing" in said


def test_a_program_that_hangs_is_ended_when_its_seconds_are_over(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (program / "program.py").write_text(PROGRAM.replace("print(says)", "import time; time.sleep(60)"))
    assert recorded("--limit", "seconds=0.2", "--", "plain", "never said", "0") != 0
    assert main(["show", "kept/run-1.jsonl"]) == 0
    said = capfd.readouterr()
    assert "the session's 0.2 seconds are over" in said.err
    assert read(program / "kept" / "run-1.jsonl").header.meta["status"] == "cut"


def test_calls_that_nobody_could_answer_say_why(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (program / "rules.jsonl").write_text('{"when": "question 0", "say": "yes"}\n')
    words = ["serve", "--engine", "scripted:rules.jsonl", "--out", "kept", "--", sys.executable, "program.py"]
    assert main([*words, "plain", "hello", "0"]) == 0
    assert "1 call not answered" in capfd.readouterr().err
    assert main(["show", "kept/run-1.jsonl"]) == 0
    said = capfd.readouterr().out
    assert "1 of 3 calls not answered" in said
    assert "does not say why" not in said
