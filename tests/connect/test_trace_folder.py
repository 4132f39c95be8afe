"""Imports write their files several at a time: the same files, in the same order, and an error ends the import."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path

import pytest

from baton import import_traces
from baton.connect import trace_folder
from baton.trace.trace import Trace


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    path = tmp_path / "talks.jsonl"
    said = [
        [{"role": "user", "content": f"task {n}"}, {"role": "assistant", "content": f"answer {n}"}]
        for n in range(60)
    ]
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in said))
    return path


def test_many_files_are_those_of_each_alone(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = os.umask(0o022)
    try:
        together = import_traces(talks, out=tmp_path / "together")
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)
    monkeypatch.setattr(trace_folder, "_SHORT", 0)
    alone = import_traces(talks, out=tmp_path / "alone")
    assert [path.name for path in together.files] == [path.name for path in alone.files]
    assert (together.changed, len(together.files)) == (60, 60)
    assert [path.read_bytes() for path in together.files] == [path.read_bytes() for path in alone.files]
    assert {path.stat().st_mode & 0o777 for path in together.files} == {0o644}
    assert not list((tmp_path / "together").glob(".*"))
    assert import_traces(talks, out=tmp_path / "together").changed == 0


@pytest.mark.parametrize("at", [3, 59])
def test_a_file_that_cannot_be_written_ends_the_import(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    write, numbers = trace_folder.write_if_other, count(1)

    def full(path: Path, trace: Trace, *, alone: bool = True) -> bool:
        if next(numbers) == at:
            raise OSError(28, "No space left on device", str(path))
        return write(path, trace, alone=alone)

    monkeypatch.setattr(trace_folder, "write_if_other", full)
    with pytest.raises(OSError, match="No space left"):
        import_traces(talks, out=tmp_path / "out")
    assert next(numbers) <= at + 2 * trace_folder._WRITERS
    assert not list((tmp_path / "out").glob(".*"))
    assert not (tmp_path / "out" / "import.json").exists()
