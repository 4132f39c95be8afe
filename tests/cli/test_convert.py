"""`baton convert`, as a person would type it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_traces import whole_trace

from baton.cli import main
from baton.trace import Event, Header, Payload, Trace
from baton.trace.formats import read, read_all, write
from baton.trace.formats.jsonl_writer import JsonlWriter

SECRET = Payload.of("the secret plan")


def trace_named(name: str = "t") -> Trace:
    return Trace(
        header=Header(trace_id=name, task_id="k"),
        events=(Event(id="e", t=0.0, type="message", agent="a", seq=0, to="b", content_ref=SECRET.ref),),
        payloads={SECRET.ref: SECRET},
        costs={"tokens": 0.0, "wall_clock_s": 0.0},
    )


@pytest.fixture
def source(tmp_path: Path) -> str:
    write(trace_named(), tmp_path / "in.jsonl")
    return str(tmp_path / "in.jsonl")


def said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["convert", *args])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", ["out.jsonl", "out.json", "out.survey.json", "out.db", "out.sqlite", "out/"])
def test_there_and_back(tmp_path: Path, source: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, source, f"{tmp_path}/{name}")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert "1 trace, 1 event, " in out
    assert read(f"{tmp_path}/{name}") == trace_named()
    assert main(["convert", f"{tmp_path}/{name}", str(tmp_path / "back.jsonl")]) == 0
    assert read(tmp_path / "back.jsonl") == trace_named()


def test_leaves_nothing_but_what_was_asked_for(tmp_path: Path, source: str) -> None:
    main(["convert", source, str(tmp_path / "out.db")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.db"]


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("o.chrome.json", '{"traceEvents"'),
        ("o.perfetto.json", '{"traceEvents"'),
        ("o.mmd", "sequenceDiagram"),
        ("o.md", "```mermaid"),
    ],
)
def test_formats_that_only_go_out(tmp_path: Path, source: str, name: str, begins: str) -> None:
    assert main(["convert", source, str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text().startswith(begins)


def test_bytes_and_counts_are_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write([trace_named(name) for name in "abc"], tmp_path / "in.jsonl")
    _, out, _ = said(capsys, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"))
    size = (tmp_path / "out.jsonl").stat().st_size
    assert out.startswith(f"{tmp_path}/out.jsonl: jsonl, 3 traces, 3 events, {size:,} bytes, ")


def test_to_overrides_the_name(tmp_path: Path, source: str) -> None:
    assert main(["convert", source, str(tmp_path / "out.txt"), "--to", "survey"]) == 0
    assert json.loads((tmp_path / "out.txt").read_text())["trace_id"] == "t"


def test_without_payloads(tmp_path: Path, source: str) -> None:
    for name in ("out.jsonl", "out.json", "out.db", "out/", "out.mmd"):
        assert main(["convert", source, f"{tmp_path}/{name}", "--without-payloads"]) == 0
    for path in [*tmp_path.glob("out.*"), *(tmp_path / "out").rglob("*")]:
        assert path.is_dir() or b"secret" not in path.read_bytes()
    back = read(tmp_path / "out.jsonl")
    assert back.events == trace_named().events
    assert back.payloads[SECRET.ref].data is None


# --- Standard output ---


def baton(*args: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "baton", "convert", *args], capture_output=True, check=False, **more
    )


@pytest.mark.parametrize("kind", ["jsonl", "survey", "chrome", "mermaid"])
def test_standard_output(tmp_path: Path, source: str, kind: str) -> None:
    done = baton(source, "-", "--to", kind)
    main(["convert", source, str(tmp_path / "same"), "--to", kind])
    assert done.returncode == 0
    assert done.stdout == (tmp_path / "same").read_bytes()
    assert done.stderr.startswith(b"standard output: " + kind.encode())


def test_standard_output_is_lines_by_default_and_a_pipe_goes_in(source: str) -> None:
    first = baton(source, "-")
    assert first.stdout == Path(source).read_bytes()
    again = baton("/dev/stdin", "-", input=first.stdout)
    assert again.stdout == first.stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    write([trace_named(str(n)) for n in range(2_000)], tmp_path / "in.jsonl")
    command = f"{sys.executable} -m baton convert {tmp_path}/in.jsonl - | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert done.stdout.startswith(b'{"kind":"trace"')
    assert done.stderr == b""


# --- Mistakes ---


def test_replaces_only_when_told(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("out.jsonl", "out.db", "out/"):
        write(trace_named("old"), f"{tmp_path}/{name}")
        code, _, err = said(capsys, source, f"{tmp_path}/{name}")
        assert code == 2
        assert "Add --force" in err
        assert read(f"{tmp_path}/{name}").trace_id == "old"
        assert said(capsys, source, f"{tmp_path}/{name}", "--force")[0] == 0
        assert [trace.trace_id for trace in read_all(f"{tmp_path}/{name}")] == ["t"]


@pytest.mark.parametrize(
    "command",
    [
        ("convert", "{source}", "{live}", "--force"),
        ("credit", "{source}", "--estimator", "group", "--out", "{live}", "--force"),
        ("export", "jsonl", "{source}", "--out", "{live}", "--force"),
    ],
)
def test_what_a_recorder_writes_is_not_replaced(
    tmp_path: Path, source: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    live = tmp_path / "live.jsonl"
    (event,) = read(source).events
    with JsonlWriter(live, Header(trace_id="live", task_id="k")) as writer:
        assert main([word.format(source=source, live=live) for word in command]) == 2
        err = capsys.readouterr().err
        assert f"{live} is being written by a recorder. Give another" in err
        assert err.count("\n") == 1
        writer.write(event)
    assert read(live).events == (event,)
    assert main(["convert", source, str(live), "--force"]) == 0  # nobody writes it any more


def test_a_file_can_replace_itself(source: str) -> None:
    before = Path(source).read_bytes()
    assert main(["convert", source, source, "--force"]) == 0
    assert Path(source).read_bytes() == before


def test_a_failure_leaves_what_was_there(
    tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Path(source).read_bytes()
    Path(source).write_bytes(whole + whole[:-9])
    for name in ("out.jsonl", "out.db", "out/"):
        write(trace_named("old"), f"{tmp_path}/{name}")
        code, _, err = said(capsys, source, f"{tmp_path}/{name}", "--force")
        assert code == 2
        assert "cut off" in err
        assert read(f"{tmp_path}/{name}").trace_id == "old"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["none.jsonl", "out.jsonl"], "there is no file none.jsonl"),
        (["in.jsonl", "out.xyz"], "does not say which format"),
        (["in.jsonl", "-", "--to", "parquet"], "cannot go to standard output"),
        (["many.jsonl", "out.json"], "holds one trace"),
        (["in.jsonl", "folder", "--force"], "holds other things than sealed shards"),
        (["in.jsonl", "folder", "--to", "jsonl", "--force"], "is a folder and jsonl is written to a file"),
        (
            ["in.jsonl", "in.jsonl", "--to", "parquet", "--force"],
            "is a file and parquet is written to a folder",
        ),
        (["in.jsonl", "/dev/null", "--to", "jsonl", "--force"], "neither a file nor a folder"),
        (["in.jsonl", "live.db", "--force"], "is being written or was not closed"),
        (["folder", "out.jsonl"], "neither sealed shards"),
    ],
)
def test_one_clear_line(
    tmp_path: Path,
    source: str,
    args: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write([trace_named("a"), trace_named("b")], "many.jsonl")
    Path("folder").mkdir()
    Path("folder/notes.txt").write_text("mine")
    Path("live.db").touch()
    Path("live.db-wal").write_text("a log")
    before = sorted(map(str, Path().rglob("*")))
    code, out, err = said(capsys, *args)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert sorted(map(str, Path().rglob("*"))) == before


def test_new_files_have_the_usual_permissions(tmp_path: Path, source: str) -> None:
    before = os.umask(0o027)
    try:
        main(["convert", source, str(tmp_path / "out.jsonl")])
    finally:
        os.umask(before)
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o640


def test_two_traces_of_one_name_are_named_with_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write([whole_trace("a"), whole_trace("a")], tmp_path / "dup.jsonl")
    for target in ("dup.db", "dup/"):
        assert main(["convert", str(tmp_path / "dup.jsonl"), f"{tmp_path}/{target}"]) == 2
        error = capsys.readouterr().err
        assert "dup.jsonl holds two traces named 'a'" in error
        assert ".part" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dup.jsonl"]
