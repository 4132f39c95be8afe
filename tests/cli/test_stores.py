"""Where runs are kept: what `--out` may be called, and what is said of files that are no store."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_runs import made, traces

from baton.cli import main
from baton.trace.formats import write


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(list(command)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert after == before
    return line


def typed(line: str) -> list[list[str]]:
    """The commands after `Type:`, and after `then:`."""
    return [shlex.split(part) for part in line.partition("Type: ")[2].split(", then: ")]


@pytest.mark.parametrize("name", ["new.jsonl", "runs/new.json", "new.chrome.json", "new.md"])
def test_a_run_is_not_written_under_a_name_that_says_something_else(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option, convert = typed(refused(capsys, "run", "shard-sum", "--out", name))
    assert main(["run", "shard-sum", *option]) == 0
    assert convert[-1] == name
    assert main(convert[1:]) == 0
    assert Path(name).is_file()


def test_the_games_are_as_strict(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "game", "play", "pandora", "--team", "--policy", "optimal", "--out", "new.jsonl")
    assert "--out new, then: baton convert new new.jsonl" in line


@pytest.mark.parametrize("command", [("run", "shard-sum"), ("fork", "sum", "--bar", "worker3")], ids=" ".join)
def test_a_place_has_a_name(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    made(Path("sum"))
    told = "'' names no place. Give one, such as runs/sum"
    assert told in refused(capsys, *command, "--out", "")
    assert told in refused(capsys, "resume", "")


def test_what_is_suggested_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    name = "r ü ☃"
    for _ in range(2):  # the second time with --trace
        capsys.readouterr()
        made(Path(name))
        (command,) = typed(capsys.readouterr().out.splitlines()[-1])
        assert command[:3] == ["baton", "show", name]
        assert main(command[1:]) == 0
    for command in (["view", "no where"], ["resume", name, "--trace", "none"]):
        ((*_, place),) = typed(refused(capsys, *command))
        assert place in ("no where", f"{name}/run.db")


def test_a_good_file_is_not_called_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    made(Path("sum"))
    write(traces(Path("sum")), "good.jsonl")
    line = refused(capsys, "resume", "good.jsonl")
    assert "good.jsonl is JSON Lines" in line
    convert, resume = typed(line)
    assert main(convert[1:]) == 0
    assert main(resume[1:]) == 0
    line = refused(capsys, "run", "shard-sum", "--out", "good.jsonl")
    assert "damaged" not in line
    assert "baton convert good good.jsonl" not in line  # it is taken


@pytest.mark.parametrize("command", [("run", "shard-sum"), ("fork", "sum", "--bar", "worker3")], ids=" ".join)
def test_other_files_under_a_stores_name(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    made(Path("sum"))
    write(traces(Path("sum")), "good.jsonl")
    Path("good.jsonl").rename("lines.db")
    Path("empty.db").touch()
    Path("notes.db").write_text("buy milk")
    assert "lines.db is JSON Lines, not a store. Give another --out." in refused(
        capsys, *command, "--out", "lines.db"
    )
    assert "empty.db is an empty file, not a store. Give another --out." in refused(
        capsys, *command, "--out", "empty.db"
    )
    assert "which is no trace" in refused(capsys, *command, "--out", "notes.db")


def test_an_empty_file_holds_nothing_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.jsonl").touch()
    line = refused(capsys, "resume", "empty.jsonl")
    assert "empty.jsonl is an empty file, not a store" in line
