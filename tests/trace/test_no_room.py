"""A place that cannot be written is called by its name, and what a kill left half made goes with the next try."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sample_traces import whole_trace

from baton.cli import main
from baton.errors import BatonError
from baton.trace.formats import write
from baton.trace.formats.durable import atomic_file, lock_part, why_not_written
from baton.trace.formats.sqlite.store import Store


def refused(number: int) -> Any:
    def make(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return make


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_the_reason_is_found_by_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    assert why_not_written(tmp_path / "run.db") is None
    monkeypatch.setattr(tempfile, "TemporaryFile", refused(number))
    assert told in (why_not_written(tmp_path / "run.db") or "")


@pytest.mark.parametrize(
    "args", [["run", "shard-sum", "--out", "out"], ["convert", "source.jsonl", "made.db"]]
)
def test_a_store_that_cannot_be_made_is_not_called_damaged(tmp_path: Path, args: list[str]) -> None:
    write(whole_trace("t"), tmp_path / "source.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "baton", *args],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert "ulimit -f" in line
    assert "damaged" not in line
    assert not (tmp_path / "made.db").exists()
    assert not list(tmp_path.glob(".*.part"))


def test_a_full_disk_is_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", refused(errno.ENOSPC))
    path = tmp_path / "folder" / "run.db"
    path.parent.mkdir()
    with Store.open(path) as store:
        store._connection.execute("PRAGMA max_page_count = 1")  # what SQLite says of a full disk
        store.add(whole_trace("t" * 5000))
        with pytest.raises(BatonError, match=r"the disk is full.*committed before is there"):
            store.commit()
        store._connection.execute("PRAGMA max_page_count = 100000")


def left_by_a_kill(folder: Path, name: str) -> Path:
    part = folder / f".{name}.abc123.part"
    part.mkdir()
    (part / name).write_bytes(b"half")
    return part


@pytest.mark.parametrize("name", ["made.jsonl", "made.db", "odd [1].json"])
def test_what_a_killed_convert_left_goes(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source.jsonl"
    write(whole_trace("t"), source)
    part = left_by_a_kill(tmp_path, name)
    other = left_by_a_kill(tmp_path, "another.jsonl")
    assert main(["convert", str(source), str(tmp_path / name)]) == 0
    assert f"removed {part}, which a convert left when it was killed" in capsys.readouterr().err
    assert not part.exists()
    assert other.exists()  # of another place, whose convert may be at work


def test_what_is_being_made_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source.jsonl"
    write(whole_trace("t"), source)
    part = left_by_a_kill(tmp_path, "made.jsonl")
    held = os.open(part, os.O_RDONLY)
    assert lock_part(held)
    assert main(["convert", str(source), str(tmp_path / "made.jsonl")]) == 0
    assert part.exists()
    os.close(held)
    assert main(["convert", str(source), str(tmp_path / "made.jsonl"), "--force"]) == 0
    assert not part.exists()


def test_a_file_half_made_goes_too(tmp_path: Path) -> None:
    (tmp_path / ".page.html.xyz.part").write_bytes(b"half")
    with atomic_file(tmp_path / "page.html") as file:
        file.write(b"whole")
        assert len(list(tmp_path.glob(".page.html.*.part"))) == 1  # its own
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
