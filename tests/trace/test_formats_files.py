"""Reading and writing by path: content decides what is read, the name decides what is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import valid_traces

from baton.errors import FormatError, UsageError
from baton.trace import Event, Header, Trace
from baton.trace.formats import detect, encode, format_of_name, read, read_all, write
from baton.trace.formats.parquet.sealing import seal_store
from baton.trace.formats.sqlite.store import Store


def trace_named(name: str) -> Trace:
    event = Event(id="e", t=0.0, type="message", agent="a", seq=0)
    return Trace(
        header=Header(trace_id=name, task_id="k"), events=(event,), costs={"tokens": 0.0, "wall_clock_s": 0.0}
    )


TRACE = trace_named("t")
MANY = {"x.jsonl": "jsonl", "x.db": "sqlite", "x.sqlite": "sqlite", "x/": "parquet"}


@pytest.mark.parametrize(("name", "kind"), {**MANY, "x.json": "survey", "x.survey.json": "survey"}.items())
def test_written_read_and_detected(tmp_path: Path, name: str, kind: str) -> None:
    path = f"{tmp_path}/{name}"
    assert format_of_name(path) == kind
    write(TRACE, path)
    assert detect(path) == kind
    assert read(path) == TRACE


@pytest.mark.parametrize("name", MANY)
def test_many(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    traces = [trace_named(name) for name in "abc"]
    write(iter(traces), path)
    assert list(read_all(path)) == traces
    with pytest.raises(FormatError, match=r"holds 3 traces.*read_all"):
        read(path)


@given(
    valid_traces(max_steps=4),
    st.sampled_from(["x.jsonl", "x.db", "x/"]),
    st.sampled_from(["y.jsonl", "y.db", "y/"]),
)
def test_any_format_to_any(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace, first: str, second: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write(trace, f"{folder}/{first}")
    write(read(f"{folder}/{first}"), f"{folder}/{second}")
    assert read(f"{folder}/{second}") == trace


@pytest.mark.parametrize("kind", ["survey", "chrome", "mermaid"])
def test_one_trace_formats_refuse_many(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError, match="holds one trace"):
        write([TRACE, TRACE], tmp_path / "x", kind)
    with pytest.raises(UsageError, match="no trace"):
        write([], tmp_path / "x", kind)
    assert list(tmp_path.iterdir()) == []


def test_content_counts_and_the_name_does_not(tmp_path: Path) -> None:
    write(TRACE, tmp_path / "lines.json", "jsonl")
    write(TRACE, tmp_path / "survey.jsonl", "survey")
    write(TRACE, tmp_path / "store.txt", "sqlite")
    for name in ("lines.json", "survey.jsonl", "store.txt"):
        assert read(tmp_path / name) == TRACE


def test_other_peoples_json(tmp_path: Path) -> None:
    lines = b"".join(encode(TRACE, "jsonl"))
    reordered = lines.replace(b'{"kind":"trace","version":1,', b'  {"version": 1, "kind" : "trace",')
    assert reordered != lines
    marked = b"\xef\xbb\xbf" + lines
    survey = b"".join(encode(TRACE, "survey"))
    for content in (
        reordered,
        marked,
        survey,
        b"\n\n" + survey,
        b"\xef\xbb\xbf" + survey,
        b" ".join(survey.split()),
    ):
        (tmp_path / "x").write_bytes(content)
        assert read(tmp_path / "x") == TRACE


def test_a_directory_of_stores(tmp_path: Path) -> None:
    write(trace_named("a"), tmp_path / "1.db")
    write(trace_named("b"), tmp_path / "2.db")
    assert [trace.trace_id for trace in read_all(tmp_path)] == ["a", "b"]


def test_a_store_can_be_read_by_the_process_that_writes_it(tmp_path: Path) -> None:
    with Store.open(tmp_path / "x.db") as store:
        with store.begin(TRACE.header) as writer:
            writer.extend(TRACE.events)
        assert read(tmp_path / "x.db").events == TRACE.events


def test_a_pipe_is_read_as_lines(tmp_path: Path) -> None:
    import os
    import threading

    os.mkfifo(tmp_path / "pipe")
    content = b"".join(encode(TRACE, "jsonl"))
    writing = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(content))
    writing.start()
    assert read(tmp_path / "pipe") == TRACE
    writing.join()


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\x1f\x8b\x08rest"), "compressed.*gunzip"),
        (lambda path: path.write_bytes(b"PAR1...."), "Give its directory"),
        (lambda path: path.write_bytes(b'{"traceEvents":[]}'), "Chrome trace"),
        (lambda path: path.write_bytes(b"\x89PNG\r\n"), r"begins with b'\\x89PNG.*Baton reads"),
        (lambda path: path.write_bytes('{"kind":"trace"}'.encode("utf-16")), "UTF-16 text.*iconv"),
        (lambda path: path.write_bytes(b"[1, 2]"), "begins with"),
        (other_database, "SQLite database but not one of Baton's"),
        (lambda path: path.mkdir(), "is empty: neither"),
        (lambda path: (path.mkdir(), (path / "notes.txt").touch()), r"has notes\.txt: neither"),
    ],
)
def test_what_cannot_be_read_says_what_it_is(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    make(tmp_path / "x")
    with pytest.raises(FormatError, match=says):
        read(tmp_path / "x")


def test_no_trace_at_all(tmp_path: Path) -> None:
    write([], tmp_path / "x.jsonl")
    with pytest.raises(FormatError, match="empty"):
        read(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text('{"kind":"trace"')
    with pytest.raises(FormatError, match="line 1 is cut off"):
        read(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("name", "says"), [("x.jsnl", r"'\.jsonl'"), ("x", "Expected one of"), ("x.txt", "does not say")]
)
def test_names_that_say_nothing(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        write(TRACE, tmp_path / name)


def test_a_format_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'survey'"):
        write(TRACE, tmp_path / "x.json", "survy")
    assert list(tmp_path.iterdir()) == []


def test_unfinished_traces_travel_too(tmp_path: Path) -> None:
    live = structs.replace(TRACE, finished=False, costs={})
    for name in ("x.jsonl", "x.json", "x.db"):
        write(live, tmp_path / name)
        assert read(tmp_path / name) == live


class TestShardsBesideAStore:
    """Sealed into the folder of a live store, which goes on growing."""

    def folder(self, tmp_path: Path, keep: bool = False) -> Path:
        folder = tmp_path / "run"
        folder.mkdir()
        write([trace_named("b"), trace_named("a")], folder / "run.db")
        seal_store(folder / "run.db", folder, keep=keep)
        write(trace_named("c"), folder / "run.db")
        return folder

    def test_both_are_read(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        assert detect(folder) == "sqlite"
        assert [trace.trace_id for trace in read_all(folder)] == ["c", "a", "b"]

    def test_a_trace_in_both_is_one(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path, keep=True)
        assert [trace.trace_id for trace in read_all(folder)] == ["b", "a", "c"]

    def test_one_sealed_unfinished_is_read_as_it_went_on(self, tmp_path: Path) -> None:
        with Store.open(tmp_path / "run.db") as store:
            store.begin(TRACE.header)
        seal_store(tmp_path / "run.db", tmp_path, unfinished=True)
        with Store.open(tmp_path / "run.db") as store, store.writer("t") as writer:
            writer.append(TRACE.events[0])
        (found,) = read_all(tmp_path)
        assert found.finished
        assert found.events == TRACE.events

    def test_another_trace_of_the_same_name_is_not_lost(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        other = structs.replace(trace_named("a"), costs={"tokens": 9.0})
        write(other, folder / "run.db")
        assert [trace.costs.get("tokens") for trace in read_all(folder) if trace.trace_id == "a"] == [
            9.0,
            0.0,
        ]

    def test_a_run_of_shard_sum_is_no_shard(self, tmp_path: Path) -> None:
        write(TRACE, tmp_path / "run.db")
        (tmp_path / "shard-sum").mkdir()
        write(TRACE, tmp_path / "shard-sum" / "run.db")
        assert list(read_all(tmp_path)) == [TRACE]
