"""Flipped bits in a live store: a read gives exactly what was written, or says it is damaged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sample_traces import event, header, whole_trace

from baton.errors import CorruptError, FormatError
from baton.trace import Trace
from baton.trace.formats.sqlite.store import Store, write_store
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.formats.sqlite.store_rows import encode


def _flip(path: Path, whole: bytes, bit: int) -> None:
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(changed)


def _read(path: Path) -> list[Trace] | None:
    """The traces, or None when the store says that it is damaged."""
    try:
        return list(read_store(path))
    except FormatError:
        return None


def _flips(folder: Path, count: int) -> tuple[int, int]:
    """Flip bits anywhere in the file, one at a time. Gives how many were detected and how many harmless."""
    path = folder / "store.db"
    traces = [whole_trace(f"t{i}") for i in range(10)]
    write_store(traces, path)
    whole = path.read_bytes()
    rng = random.Random(2)
    detected = harmless = 0
    for _ in range(count):
        _flip(path, whole, rng.randrange(len(whole) * 8))
        found = _read(path)
        if found is None:
            detected += 1
        else:
            assert found == traces
            harmless += 1
    return detected, harmless


def test_flipped_bits_anywhere(tmp_path: Path) -> None:
    detected, _ = _flips(tmp_path, 400)
    assert detected > 0


@pytest.mark.slow
def test_ten_thousand_flipped_bits_anywhere(tmp_path: Path) -> None:
    detected, harmless = _flips(tmp_path, 10_000)
    assert detected + harmless == 10_000


def test_every_flipped_bit_of_a_record_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path) as store, store.begin(header()) as writer:
        writer.extend(event(seq, role="worker") for seq in range(3))
    whole = path.read_bytes()
    body = encode(event(1, role="worker"))
    start = whole.index(body)
    for bit in range(start * 8, (start + len(body)) * 8):
        _flip(path, whole, bit)
        with pytest.raises(CorruptError, match=r"store\.db was damaged.*record 1 of trace 't'"):
            list(read_store(path))


def test_flips_in_the_log_give_an_earlier_commit_or_an_error(tmp_path: Path) -> None:
    """SQLite takes a damaged log for one that was cut short; no record may come back changed."""
    path = tmp_path / "store.db"
    copy = tmp_path / "copy.db"
    commits: list[list[Trace]] = [[]]
    with Store.open(path) as store:
        writer = store.begin(header())
        for seq in range(6):
            writer.append(event(seq))
            store.commit()
            commits.append(list(read_store(path)))
        shutil.copy(path, tmp_path / "start.db")  # never read back into this process's own store
        log = Path(f"{path}-wal").read_bytes()
    rng = random.Random(3)
    for _ in range(300):
        shutil.copy(tmp_path / "start.db", copy)
        Path(f"{copy}-shm").unlink(missing_ok=True)
        _flip(Path(f"{copy}-wal"), log, rng.randrange(len(log) * 8))
        found = _read(copy)
        assert found is None or found in commits


def test_every_truncation(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    traces = [whole_trace(f"t{i}") for i in range(3)]
    write_store(traces, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 499):
        path.write_bytes(whole[:length])
        assert _read(path) is None


def _not_closed(folder: Path) -> tuple[Path, list[Trace]]:
    """The files of a store as a kill leaves them, in a folder of their own; and what was acknowledged."""
    path, left = folder / "made" / "store.db", folder / "left"
    path.parent.mkdir()
    with Store.open(path, "process") as store:
        for name in ("odd name é", "t2"):
            with store.begin(header(name)) as writer:
                for seq in range(7):
                    writer.append(event(seq, role="worker"))
                    store.commit()
        traces = list(read_store(path))
        shutil.copytree(path.parent, left)  # the copies are read, never this process's own store
    return left / "store.db", traces


def _damaged(left: Path, name: str, content: bytes | None) -> list[Trace] | None:
    """What a copy gives in which one file is another, or gone."""
    copy = left.parent.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(left.parent, copy)
    (copy / "store.db-shm").unlink(missing_ok=True)
    place = copy / name
    place.unlink() if content is None else place.write_bytes(content)
    return _read(copy / "store.db")


def test_flips_in_files_that_were_not_closed_are_never_silent(tmp_path: Path) -> None:
    left, traces = _not_closed(tmp_path)
    assert _damaged(left, "store.db-wal", (left.parent / "store.db-wal").read_bytes()) == traces
    rng = random.Random(4)
    detected = 0
    for name in ("store.db-wal", "store.db", "store.db-commits"):
        whole = (left.parent / name).read_bytes()
        for _ in range(40):
            bit = rng.randrange(len(whole) * 8)
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            found = _damaged(left, name, bytes(changed))
            assert found is None or found == traces, (name, bit)
            detected += found is None
    assert detected > 20


@pytest.mark.parametrize("keep", [0, 20, 32, 5_000, None])
def test_a_log_that_is_cut_or_gone_is_told(tmp_path: Path, keep: int | None) -> None:
    left, _ = _not_closed(tmp_path)
    log = (left.parent / "store.db-wal").read_bytes()
    assert _damaged(left, "store.db-wal", None if keep is None else log[:keep]) is None
    store = tmp_path / "copy" / "store.db"
    for touch in (read_store, lambda path: [Store.open(path)]):
        with pytest.raises(CorruptError, match=r"of its 16 commits are lost.*rm .*store\.db-commits "):
            list(touch(store))
    Path(f"{store}-commits").unlink()  # as it says
    assert len(list(read_store(store))) <= 2
    Store.open(store).close()
    assert not Path(f"{store}-commits").exists()


def test_a_store_without_a_count_of_commits_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    write_store([whole_trace("before")], path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE store DROP COLUMN commits")  # as 0.2 made it
    with Store.open(path) as store:
        store.add(whole_trace("after"))
        store.commit()
        assert [trace.trace_id for trace in read_store(path)] == ["before", "after"]
    assert [trace.trace_id for trace in read_store(path)] == ["before", "after"]
