"""`baton fork`: each intervention, what it saves, and what it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from cli_runs import made, traces

from baton.cli import main
from baton.tasks import catalog
from baton.tasks.shard_sum import ShardSum
from baton.tasks.task import Instance
from baton.team.tools.tool import Tool, tool
from baton.trace.formats import read
from baton.trace.trace import Trace
from baton.trace.validation import validate


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    place = made(tmp_path / "run")
    capsys.readouterr()
    return place


def forked(run: Path, *args: str) -> Trace:
    out = run.parent / "fork.jsonl"
    out.unlink(missing_ok=True)
    assert main(["fork", str(run), *args, "--out", str(out)]) == 0
    trace = read(out)
    assert validate(trace) == []
    assert main(["replay", str(out)]) == 0  # a fork is a run like any other
    assert trace.header.meta["forked_from"] == "shard-sum-centralized-0"
    return trace


def answer(trace: Trace) -> str | None:
    (stop,) = [e for e in trace.events if e.decision == "stop"]
    return trace.text(stop.content_ref)


def refused(run: Path, capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["fork", str(run), *args, "--out", str(run.parent / "refused.jsonl")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not (run.parent / "refused.jsonl").exists()
    return line


def test_replace_a_return(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (before,) = traces(run)
    said = int(before.text(before.event("worker2#2").content_ref) or "")
    trace = forked(run, "--at", "worker2#2", "--replace", "0")
    assert int(answer(trace) or "") == int(answer(before) or "") - said
    out = capsys.readouterr().out
    assert "again    calls: 1 ran" in out
    assert "9 were reused" in out
    assert "changed  2 of 22 events: worker2#2, orchestrator#6" in out


def test_blank_a_return(run: Path) -> None:
    trace = forked(run, "--at", "worker2#2", "--blank")
    assert trace.text(trace.event("worker2#2").content_ref) == ""


def test_replace_what_a_tool_said(run: Path) -> None:
    trace = forked(run, "--at", "worker2#1r", "--replace", "1 2 3")
    assert trace.text(trace.event("worker2#2").content_ref) == "6"


def test_drop_a_spawn(run: Path) -> None:
    trace = forked(run, "--at", "orchestrator#2", "--drop")
    assert trace.event("orchestrator#2").status == "cancelled"
    assert sum(e.type == "spawn" and e.status == "ok" for e in trace.events) == 3


def test_force_a_stop(run: Path) -> None:
    trace = forked(run, "--at", "orchestrator#1", "--do", "stop no idea")
    assert answer(trace) == "no idea"
    assert len(trace.calls) == 1


def test_bar_an_agent(run: Path) -> None:
    trace = forked(run, "--bar", "worker3")
    assert {e.to for e in trace.events if e.type == "spawn"} == {"worker1", "worker2", "worker4"}


def test_a_person_is_on_the_record(run: Path) -> None:
    trace = forked(run, "--at", "worker2#2", "--replace", "0", "--person", "Ann")
    (word,) = [e for e in trace.events if e.type == "human_intervention"]
    assert (word.agent, word.extra["edits"]) == ("Ann", "worker2#2")
    assert "orchestrator#6" in word.extra["invalidated"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--at", "worker2#3", "--drop"), "no event 'worker2#3'. Did you mean 'worker2#2'?"),
        (("--bar", "worker9"), "no agent 'worker9' was spawned"),
        (("--drop",), "Type: --at EVENT"),
        (("--at", "worker2#2", "--do", "wibble"), "expected one command"),
        (("--at", "worker2#2", "--do", "stop 1\nstop 2"), "it has 2 commands"),
        (("--at", "orchestrator#5", "--replace", "x"), "has no text of its own"),
        (("--at", "worker2#1", "--replace", "x"), "has no text of its own"),
        (("--at", "worker2#1r", "--drop"), "can only be replaced"),
        (("--at", "orchestrator#7", "--drop"), "that no agent chose"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    args: Sequence[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(run, capsys, *args)


def test_a_bar_is_of_no_event(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Leave --at out" in refused(run, capsys, "--at", "worker2#2", "--bar", "worker3")
    assert "Leave --person out" in refused(run, capsys, "--bar", "worker3", "--person", "Ann")


def test_a_file_is_not_replaced(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "kept.jsonl"
    out.write_text("mine")
    assert main(["fork", str(run), "--bar", "worker3", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"baton fork: {out} is there already. Give another --out."
    assert out.read_text() == "mine"


def test_the_examples_of_its_help_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(Path("runs/sum"))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["fork", "--help"])
    examples = [line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines() if "  baton" in line]
    examples = [
        line for line in examples if " -- " not in line
    ]  # programs: tests/serve/test_replay_program.py
    outs = [shlex.split(line)[-1] for line in examples]
    assert len(set(outs)) == len(outs) == 4
    for line in examples[:3]:  # the fourth is of a training run
        assert main(shlex.split(line)) == 0, line


def test_two_changes_at_once_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["fork", str(run), "--at", "worker1#2", "--drop", "--blank", "--out", "x.jsonl"])
    assert exit_.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_place_holds_many_forks_but_not_the_same_one_twice(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fork", str(run), "--at", "worker2#2", "--replace", "0", "--out", str(tmp_path / "forks")]
    assert main(command) == 0
    assert main([*command, "--replicate", "1"]) == 0
    assert len(traces(tmp_path / "forks")) == 2
    capsys.readouterr()
    assert main(command) == 2
    assert "already holds this fork" in capsys.readouterr().err
    assert main([*command[:-1], str(tmp_path / "x.parquet")]) == 2
    assert "which format to write" in capsys.readouterr().err


class Paying(ShardSum):
    """The example, with a tool that acts on the world."""

    name: ClassVar[str] = "paying"
    paid: ClassVar[list[int]] = []

    def tools(self, instance: Instance) -> Sequence[Tool]:
        (pure,) = super().tools(instance)

        @tool
        def read_shard(shard: int) -> str:
            """Reads a shard, for money."""
            self.paid.append(shard)
            return str(pure(shard))

        return (read_shard,)


def test_impure_tools_are_not_run_again_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalog.TASKS, "paying", Paying)
    monkeypatch.setattr(Paying, "paid", [])
    place = tmp_path / "run"
    assert main(["run", "paying", "--out", str(place)]) == 0
    assert sorted(Paying.paid) == [1, 2, 3, 4]
    capsys.readouterr()
    change = ("--at", "orchestrator#2", "--replace", "sum the numbers in shards 3")
    line = refused(place, capsys, *change)
    assert "'read_shard' again at worker2#1" in line
    assert "--allow-impure" in line
    assert sorted(Paying.paid) == [1, 2, 3, 4]
    command = ["fork", str(place), *change, "--allow-impure", "--out", str(tmp_path / "fork.jsonl")]
    assert main(command) == 0
    assert sorted(Paying.paid) == [1, 2, 3, 3, 4]
    # What lies after the tool's result does not run it again, and needs no leave.
    assert main(["fork", str(place), "--at", "worker2#2", "--blank", "--out", str(tmp_path / "b.jsonl")]) == 0
    assert sorted(Paying.paid) == [1, 2, 3, 3, 4]
