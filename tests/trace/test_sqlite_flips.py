"""Flipped bits in a live store: a read gives exactly what was written, or says it is damaged."""

from __future__ import annotations

import random
import shutil
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
