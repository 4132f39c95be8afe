from __future__ import annotations

from pathlib import Path

import pytest
from sample_traces import event, header, whole_trace

from baton.cli import main
from baton.errors import BatonError
from baton.trace.formats import write
from baton.trace.formats.parquet.shard_read import read_sealed, sealed_ids
from baton.trace.formats.sqlite.store import Store, write_store
from baton.trace.formats.sqlite.store_read import list_traces


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two finished traces and an unfinished one."""
    path = tmp_path / "store.db"
    write_store([whole_trace("b"), whole_trace("a")], path)
    with Store.open(path) as opened:
        opened.begin(header("live")).append(event(0))
    return path


def ids(path: Path) -> list[str]:
    return [each.trace_id for each in list_traces(path)]


def test_finished_traces_move_and_unfinished_stay(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["seal", str(store), str(out)]) == 0
    said = capsys.readouterr().out
    assert "Sealed 2 traces into" in said
    assert "1 trace still in" in said
    assert list(read_sealed(out)) == [whole_trace("a"), whole_trace("b")]
    assert ids(store) == ["live"]
    assert main(["seal", str(store), str(out)]) == 0
    assert "no finished trace to seal. Add --all" in capsys.readouterr().out


def test_keep_leaves_the_store_and_sealing_again_finishes(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with Store.open(store):  # --keep works beside a live writer
        assert main(["seal", str(store), str(out), "--keep"]) == 0
        assert main(["seal", str(store), str(out)]) == 2
    assert "open for writing elsewhere" in capsys.readouterr().err
    assert ids(store) == ["b", "a", "live"]
    assert main(["seal", str(store), str(out)]) == 0
    assert "2 traces of" in capsys.readouterr().out
    assert ids(store) == ["live"]
    assert sealed_ids(out) == ["a", "b"]


def test_all_seals_unfinished_ones_too(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["seal", str(store), str(out), "--all"]) == 0
    assert {trace.trace_id: trace.finished for trace in read_sealed(out)} == {
        "a": True,
        "b": True,
        "live": False,
    }
    assert ids(store) == ["live"]


def test_a_trace_sealed_with_other_content_is_not_dropped(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["seal", str(store), str(out), "--all"]) == 0
    with Store.open(store) as opened, opened.writer("live") as writer:
        writer.append(event(1))
    assert main(["seal", str(store), str(out)]) == 2
    assert "trace 'live' is sealed in" in capsys.readouterr().err
    assert ids(store) == ["live"]


def test_other_files_and_run_directories(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write([whole_trace("x"), whole_trace("y")], tmp_path / "traces.jsonl")
    assert main(["seal", str(tmp_path / "traces.jsonl"), str(tmp_path / "one")]) == 0
    assert sealed_ids(tmp_path / "one") == ["x", "y"]
    assert main(["seal", str(store.parent / "one"), str(tmp_path / "two")]) == 2
    assert "already sealed" in capsys.readouterr().err
    assert main(["seal", str(tmp_path / "nowhere.db"), str(tmp_path / "two")]) == 2
    assert "there is no file" in capsys.readouterr().err
    run = tmp_path / "run"
    run.mkdir()
    write_store([whole_trace("z")], run / "run.db")
    assert main(["seal", str(run), str(tmp_path / "three")]) == 0
    assert sealed_ids(tmp_path / "three") == ["z"]


def test_sealing_into_a_runs_own_folder_hides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_store([whole_trace("a")], tmp_path / "run.db")
    assert main(["seal", str(tmp_path), str(tmp_path)]) == 0
    write_store([whole_trace("b")], tmp_path / "run.db")
    main(["validate", str(tmp_path)])
    assert "2 traces" in capsys.readouterr().out
    for name in "ab":
        assert main(["show", str(tmp_path), "--trace", name]) == 0
    assert main(["query", str(tmp_path), "SELECT trace_id FROM traces ORDER BY trace_id"]) == 0
    assert capsys.readouterr().out.endswith("trace_id\na\nb\n")
    assert main(["seal", str(tmp_path), str(tmp_path)]) == 0
    assert sorted(sealed_ids(tmp_path)) == ["a", "b"]
    capsys.readouterr()
    assert main(["query", str(tmp_path), "SELECT count(*) AS n FROM traces"]) == 0
    assert capsys.readouterr().out == "n\n2\n"


def test_a_seal_that_fails_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jsonl").write_text('{"kind":"trace"')
    assert main(["seal", str(tmp_path / "bad.jsonl"), str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    assert main(["seal", str(tmp_path / "bad.jsonl"), str(tmp_path / "there")]) == 2
    assert (tmp_path / "there").is_dir()  # somebody else's
    capsys.readouterr()
    (tmp_path / "file").touch()
    write(whole_trace("a"), tmp_path / "a.jsonl")
    assert main(["seal", str(tmp_path / "a.jsonl"), str(tmp_path / "file")]) == 2
    assert "is a file; sealed traces go into a folder" in capsys.readouterr().err


def test_a_store_that_cannot_be_written_is_sealed_with_keep_alone(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Store) -> None:
        raise BatonError("attempt to write a readonly database")

    monkeypatch.setattr(Store, "check_writable", refuse)
    assert main(["seal", str(store), str(tmp_path / "out")]) == 2
    assert "cannot be written" in (said := capsys.readouterr().err)
    assert "Add --keep" in said
    assert not (tmp_path / "out").exists()
    assert main(["seal", str(store), str(tmp_path / "out"), "--keep"]) == 0
