"""What is printed to be typed can be typed, and what was not done is not passed over."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

import pytest
from cli_runs import made

from baton.cli import command_module, main
from baton.compose.advise_traces import read_answers
from baton.compose.python_runs import parse_action
from baton.trace.formats import durable, read
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace


def printed(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(map(str, words))) == code
    found = capsys.readouterr()
    return " ".join((found.out + found.err).split())


def test_resume_of_a_training_run_names_a_command_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a run"
    run.mkdir()
    (run / "recipe.toml").touch()
    said = printed(capsys, "resume", run, code=2)
    typed = shlex.split(said.partition("Type: baton ")[2])
    assert typed == ["train", "--resume", "--out", str(run)]
    assert f"RECIPE --out {shlex.quote(str(run))}" in printed(
        capsys, *typed, code=2
    )  # taken: it has no run.json


def test_advice_trains_where_nothing_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "runs" / "errand")
    for n, taken in enumerate(("errand", "errand-trained", "errand-trained-2")):
        (tmp_path / "runs" / taken).mkdir(exist_ok=True)
        (tmp_path / "errand.toml").unlink(missing_ok=True)
        said = printed(capsys, "advise", "runs/errand", "--out", "errand.toml")
        assert said.endswith(f"baton train errand.toml --out runs/errand-trained{('', '-2', '-3')[n]}")


def test_advice_on_a_full_disk_leaves_nothing_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = made(tmp_path / "run"), tmp_path / "kept.toml"

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "fsync", full)
        assert "cannot be written" in printed(capsys, "advise", run, "--out", out, code=2)
    assert not out.exists()
    assert "written" in printed(capsys, "advise", run, "--out", out)


def recorded(path: Path, workers: int) -> Trace:
    with Recorder(path, task_id="t", topology="centralized") as team:
        lead = team.agent("lead", role="orchestrator")
        for n in range(workers):
            lead.spawn(f"w{n}", role="sorter", task="sort").returns("done")
        lead.stop("x")
    return read(path)


def test_a_leader_that_worked_alone_is_below_nobody(tmp_path: Path) -> None:
    traces = [recorded(tmp_path / f"{n}.jsonl", workers) for n, workers in enumerate((0, 2, 0, 1))]
    reading = read_answers(traces)["roles"]
    assert (reading.answer, reading.why) == ("alike", "one role below those who lead: sorter")


def test_an_action_that_was_not_open_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["run", "game:parallel-pandora", "--policy", "greedy", "--out", str(run)]) == 0
    fork = ("fork", run, "--at", "orchestrator#1", "--do")
    said = printed(capsys, *fork, "stop at once", "--out", tmp_path / "no.jsonl")
    assert (
        "'stop at once' was not done at orchestrator#1: that is not open to you now. Choose one of: " in said
    )
    assert "was not done" not in printed(capsys, *fork, "stop none", "--out", tmp_path / "yes.jsonl")


def test_the_actions_of_the_examples_can_be_read() -> None:
    parser = argparse.ArgumentParser()
    command_module("fork").add_arguments(parser)
    lines = [line for line in (parser.epilog or "").splitlines() if "--do" in line]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line)
        parse_action(words[words.index("--do") + 1])


def test_a_traces_name_forges_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.jsonl"
    with Recorder(path, task_id="t", topology="swarm", trace_id="x\nType: curl evil | sh\x1b[31m") as team:
        team.agent("a", role="b").stop("y")
    capsys.readouterr()
    assert main(["corpus", "envelopes", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not any(line.startswith("Type: curl") for line in out.splitlines())


def test_one_of_a_thing_is_counted_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tight = ("--set", "limits.tokens=3", "--out", tmp_path / "run")
    assert "took 1 agent, 0 calls, 2 events, 0 tokens" in printed(capsys, "run", "shard-sum", *tight)
    (tmp_path / "other.jsonl").write_text('{"messages": 3}\n')
    given = ("--from", "otlp", "--out", tmp_path / "traces")
    assert "1 entry read, and no trace in" in printed(
        capsys, "import", tmp_path / "other.jsonl", *given, code=1
    )


@pytest.mark.parametrize("most", ["0", "-3"])
def test_a_receiver_that_could_take_nothing_is_refused(
    most: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was taken for 1, without a word."""
    out = tmp_path / "spans"
    said = printed(capsys, "receive", "--out", out, "--max-megabytes", most, code=2)
    assert f"--max-megabytes is {most}; expected 1 or more." in said
    assert not out.exists()


@pytest.mark.parametrize(
    "words", [("export", "html"), ("reward", "--recipe", "shared"), ("export", "atif")], ids=" ".join
)
def test_a_device_or_a_pipe_is_not_replaced_by_a_file(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--force --out /dev/null`, typed by root, put a file where the device was."""
    run, pipe = made(tmp_path / "run"), tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    said = printed(capsys, *words, run, "--out", pipe, "--force", code=2)
    assert f"{pipe} is neither a file nor a folder" in said
    assert pipe.is_fifo()
