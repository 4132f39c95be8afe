"""The live store: identity, group commit, one writer, many readers, full disks, damage."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from sample_traces import event, header, whole_trace
from strategies import arbitrary_traces

from baton.errors import BatonError, CorruptError, FormatError, TraceError, UsageError
from baton.trace import End, Event, Header, Payload, Trace, read_all
from baton.trace.formats.sqlite.store import Store, write_store
from baton.trace.formats.sqlite.store_read import is_store, list_traces, read_store


def num_payloads(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM payloads").fetchone()
    return int(count)


@given(arbitrary_traces())
@settings(max_examples=60, deadline=None)
def test_write_then_read_is_the_identity(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        write_store([trace], path, "process")
        assert list(read_store(path)) == [trace]


def test_many_traces_share_payloads(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    traces = [whole_trace(f"t{i}") for i in range(20)]
    write_store(traces, path)
    assert list(read_store(path)) == traces
    assert list(read_store(path, ["t7", "t3"])) == [traces[7], traces[3]]
    assert num_payloads(path) == 3
    first = list_traces(path)[0]
    assert (first.trace_id, first.task_id, first.finished, first.num_events) == ("t0", "sum", True, 2)


def test_nothing_is_there_before_commit_and_all_of_it_after(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path) as store:
        left, right = store.begin(header("left")), store.begin(header("right"))
        left.append(event(0))
        right.extend([event(0), event(1)])
        assert list_traces(path) == []
        store.commit()
        assert [len(trace.events) for trace in read_store(path)] == [1, 2]
        left.append(event(1))
        assert [len(trace.events) for trace in read_store(path)] == [1, 2]
        left.end(End(costs={"tokens": 5.0}))
        store.commit()
        assert [(t.finished, t.costs) for t in read_store(path)] == [(True, {"tokens": 5.0}), (False, {})]


def test_a_reader_keeps_its_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path) as store:
        writers = [store.begin(header(name)) for name in ("x", "y")]
        store.commit()
        reader = read_store(path)
        assert len(next(reader).events) == 0
        for writer in writers:
            writer.append(event(0))
        store.commit()
        assert len(next(reader).events) == 0
        reader.close()
        assert [len(trace.events) for trace in read_store(path)] == [1, 1]


def test_events_come_back_in_seq_order(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store, store.begin(header()) as writer:
        writer.extend([event(2), event(0), event(1)])
    (trace,) = read_store(tmp_path / "store.db")
    assert [e.seq for e in trace.events] == [0, 1, 2]
    assert trace.finished


def test_resume_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    text = Payload.of("hello")
    with Store.open(path) as store:
        writer = store.begin(header())
        writer.extend([event(0), text, event(1)])
    with Store.open(path) as store:
        seen = store.read("t")
        assert [e.seq for e in seen.events] == [0, 1]
        assert seen.payloads == {text.ref: text}
        writer = store.writer("t")
        assert (writer.num_records, writer.num_events) == (3, 2)
        writer.append(event(2))
        writer.end()
        store.commit()
        with pytest.raises(UsageError, match="has ended"):
            store.writer("t")
    (trace,) = read_store(path)
    assert [e.seq for e in trace.events] == [0, 1, 2]


def test_a_block_that_raises_leaves_a_trace_to_resume(tmp_path: Path) -> None:
    def fail() -> None:
        with Store.open(tmp_path / "s.db") as store, store.begin(header()) as writer:
            writer.append(event(0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    (trace,) = read_store(tmp_path / "s.db")
    assert not trace.finished
    assert len(trace.events) == 1


def test_mistakes_are_said_clearly(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(FormatError, match="there is no file"):
        list(read_store(path))
    with pytest.raises(UsageError, match="no directory"):
        Store.open(tmp_path / "nowhere" / "store.db")
    with pytest.raises(UsageError, match="Did you mean 'power'"):
        Store.open(path, durability="powr")  # type: ignore[arg-type]  # the point of the test
    with Store.open(path) as store:
        writer = store.begin(header())
        with pytest.raises(UsageError, match="already has a trace 't'"):
            store.begin(header())
        with pytest.raises(TraceError, match="event 'e0' cannot be stored"):
            writer.append(event(0, extra={"x": object()}))
        with pytest.raises(TraceError, match="cannot be stored"):
            writer.append(event(0, role="\ud800"))
        writer.end()
        with pytest.raises(UsageError, match="has ended"):
            writer.append(event(0))
    with pytest.raises(UsageError, match="closed"):
        store.begin(header("u"))
    with pytest.raises(UsageError, match=r"no trace 'tt'\. Did you mean 't'"):
        list(read_store(path, ["tt"]))


def test_other_files_are_refused(tmp_path: Path) -> None:
    text, other, newer = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("not a database, but long enough to be taken for one by its size alone" * 20)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE x(y)")
    connection.close()
    Store.open(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, words in ((text, "no Baton store"), (other, "not a Baton store"), (newer, "version 99")):
        with pytest.raises(FormatError, match=words):
            list(read_store(path))
        with pytest.raises(FormatError, match=words):
            Store.open(path)
    assert text.read_text().startswith("not a database")
    assert [is_store(path) for path in (text, other, newer)] == [False, False, True]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = f"from baton.trace.formats.sqlite.store import Store\nStore.open({str(path)!r})"
    with Store.open(path):
        with pytest.raises(UsageError, match="open for writing elsewhere"):
            Store.open(path)
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "open for writing elsewhere" in other.stderr
    subprocess.run([sys.executable, "-c", code], check=True)


def test_looking_at_the_file_does_not_drop_the_writers_locks(tmp_path: Path) -> None:
    """A plain open and close here would let another process delete the log under the writer."""
    path = tmp_path / "store.db"
    visit = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT * FROM store'); c.close()"
    with Store.open(path) as store:
        writer = store.begin(header())
        for seq in range(5):
            writer.append(event(seq))
            store.commit()
            assert is_store(path)
            assert list_traces(path)[0].num_events == seq + 1
            subprocess.run([sys.executable, "-c", visit], check=True)
            assert Path(f"{path}-wal").exists()
    assert list_traces(path)[0].num_events == 5


_FORK = """
import os, sys
from baton.errors import UsageError
from baton.trace import Header
from baton.trace.formats.sqlite.store import Store

store = Store.open(sys.argv[1])
store.begin(Header(trace_id="t", task_id="x"))
child = os.fork()
if child == 0:
    try:
        store.commit()
    except UsageError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
store.close()
"""


def test_a_forked_child_cannot_write_through_its_parents_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    done = subprocess.run(
        [sys.executable, "-c", _FORK, str(path)], capture_output=True, text=True, check=True
    )
    assert "before a fork" in done.stdout
    assert len(list_traces(path)) == 1


def test_threads_append_while_another_commits(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path, "process") as store:
        writers = [store.begin(header(f"t{i}")) for i in range(4)]

        def play(index: int) -> None:
            for seq in range(500):
                writers[index].append(event(seq))
                if index == 0 and seq % 10 == 0:
                    store.commit()

        threads = [threading.Thread(target=play, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for trace in read_store(path):
        assert [e.seq for e in trace.events] == list(range(500))


def test_dropping_traces_frees_their_payloads_only(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    own = Payload.of("only here")
    write_store([whole_trace("t0"), whole_trace("t1")], path)
    with Store.open(path) as store:
        with store.begin(header("t2")) as writer:
            writer.append(own)
        live = store.begin(header("live"))
        live.append(event(0))
        store.commit()
        with pytest.raises(UsageError, match="unfinished"):
            store.drop(["t0", "live"])
        store.drop(["t2", "t0"])
        live.append(event(1))
        store.begin(header("t0"))
    assert [trace.trace_id for trace in read_store(path)] == ["t1", "live", "t0"]
    assert list(read_store(path, ["t1"])) == [whole_trace("t1")]
    assert num_payloads(path) == 3


_READ_ONLY = """
import os, sys
from baton.trace.formats.sqlite.store_read import read_store

if os.geteuid() == 0:  # root may write anywhere
    os.setuid(65534)
assert not os.access(os.path.dirname(sys.argv[1]), os.W_OK)
print(*(trace.trace_id for trace in read_store(sys.argv[1])))
"""


def test_a_closed_store_reads_from_a_read_only_directory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        write_store([whole_trace()], path)
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        run = [sys.executable, "-c", _READ_ONLY, str(path)]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        Path(folder).chmod(0o755)
    assert (done.stdout, done.stderr) == ("t\n", "")


_FULL_DISK = """
import resource, sys
from baton.errors import BatonError
from baton.trace import Event, Header
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import list_traces

path = sys.argv[1]
store = Store.open(path)
writer = store.begin(Header(trace_id="t", task_id="x"))
store.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
acknowledged = appended = 0
try:
    while appended < 100_000:
        for _ in range(100):
            writer.append(Event(id=f"e{appended}", t=0.0, type="message", agent="a", seq=appended))
            appended += 1
        store.commit()
        acknowledged = appended
except BatonError as error:
    assert "once there is room" in str(error), error
else:
    raise SystemExit("the limit was never met")
assert list_traces(path)[0].num_events == acknowledged
try:
    store.commit()
except BatonError:
    pass
else:
    raise SystemExit("there is still no room")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.append(Event(id="last", t=0.0, type="message", agent="a", seq=appended))
writer.end()
store.close()
print(acknowledged, appended + 1)
"""


def test_a_full_disk_loses_nothing_and_ends_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    acknowledged, total = map(int, done.stdout.split())
    assert 0 < acknowledged < total
    (trace,) = read_store(path)
    assert [e.seq for e in trace.events] == list(range(total))
    assert trace.finished


def test_a_store_at_its_page_limit(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        writer = store.begin(header())
        store._connection.execute("PRAGMA max_page_count = 20")
        writer.extend(event(seq) for seq in range(5000))
        with pytest.raises(BatonError, match="is full"):
            store.commit()
        store._connection.execute("PRAGMA max_page_count = 100000")
        store.commit()
        assert len(store.read("t").events) == 5000


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM records WHERE key IN (SELECT max(key) FROM records)",
        "DELETE FROM records WHERE key IN (SELECT min(key) FROM records)",
        "UPDATE records SET key = key + 1 WHERE key IN (SELECT max(key) FROM records)",
        "UPDATE records SET (crc, body) = (SELECT crc, body FROM records ORDER BY key LIMIT 1 OFFSET 1)",
        "UPDATE records SET crc = crc + 1",
        "UPDATE records SET body = CAST(body AS TEXT)",
        "UPDATE payloads SET body = body || x'00'",
        "DELETE FROM payloads",
        "DELETE FROM links",
        "DELETE FROM traces",
        "UPDATE traces SET ending = NULL",
        "UPDATE traces SET num_records = num_records - 1",
        "UPDATE store SET num_traces = 2",
        "DELETE FROM store",
        "DROP TABLE records",
    ],
)
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "store.db"
    write_store([whole_trace()], path)
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(CorruptError, match=r"store\.db was damaged"):
        list(read_store(path))


def test_what_is_no_store_is_not_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: opened.append(connect(*a, **k)) or opened[-1])
    path = tmp_path / "a.db"
    path.write_text("not a database, but long enough to be taken for one by its size alone" * 20)
    with pytest.raises(FormatError):
        list(read_store(path))
    (connection,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_store_whose_maker_died_in_the_first_moment_is_an_empty_store(tmp_path: Path) -> None:
    unborn = tmp_path / "unborn.db"
    with sqlite3.connect(unborn) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert list(read_all(unborn)) == []
    with Store.open(unborn) as store:
        writer = store.begin(Header(trace_id="a", task_id="t"))
        writer.append(Event(id="e", t=0.0, type="spawn", agent="a", seq=1))
    assert [trace.trace_id for trace in read_all(unborn)] == ["a"]

    # The mark is still in the log alone: nothing was ever copied into the file.
    young = tmp_path / "young.db"
    code = (
        "import os, sys\n"
        "from baton.trace.formats.sqlite.store import Store\n"
        "from baton.trace.trace import Header\n"
        "store = Store.open(sys.argv[1])\n"
        "store.begin(Header(trace_id='b', task_id='t'))\n"
        "store.commit()\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(young)], check=False).returncode == 9
    assert [trace.trace_id for trace in read_all(young)] == ["b"]
