"""Sealed traces: identity, shards, what other libraries see, and damage of every kind."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sample_traces import event, header, whole_trace
from strategies import arbitrary_traces

from baton.cli import main
from baton.errors import CorruptError, FormatError, TraceError, UsageError
from baton.trace import Call, Charge, Credit, Edge, Event, Header, Payload, Reward, Trace
from baton.trace.formats.parquet import shard_read, shard_write
from baton.trace.formats.parquet.manifest import Manifest, read_manifest
from baton.trace.formats.parquet.shard_read import read_sealed, sealed_ids, verify_sealed
from baton.trace.formats.parquet.shard_schema import COLUMNS
from baton.trace.formats.parquet.shard_write import seal


@given(st.lists(arbitrary_traces(), min_size=1, max_size=3, unique_by=lambda trace: trace.trace_id))
@settings(max_examples=40, deadline=None)
def test_seal_then_read_is_the_identity(traces: list[Trace]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seal(traces, folder)
        assert list(read_sealed(folder)) == traces


def test_tuples_from_memory_are_sealed_as_the_lists_that_json_has(tmp_path: Path) -> None:
    told = structs.replace(header(), meta={"run": {"shape": (1, (2, 3)), "roles": {"a": ("b",)}}})
    seal([Trace(header=told)], tmp_path)
    (found,) = read_sealed(tmp_path)
    assert found.header.meta == {"run": {"shape": [1, [2, 3]], "roles": {"a": ["b"]}}}


def test_every_field_has_its_column() -> None:
    """A field added to a record and forgotten here would be lost on sealing."""
    structs_ = {
        "events": Event,
        "edges": Edge,
        "calls": Call,
        "rewards": Reward,
        "credits": Credit,
        "charges": Charge,
    }
    for kind, struct in structs_.items():
        assert set(COLUMNS[kind]) == {"trace_id", *struct.__struct_encode_fields__}
    assert set(COLUMNS["payloads"]) == {"trace_id", "text", *Payload.__struct_encode_fields__}
    assert {*Header.__struct_encode_fields__, "costs", "metrics", "finished"} <= set(COLUMNS["traces"])


def test_row_groups_and_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_write, "_GROUP_ROWS", 7)
    monkeypatch.setattr(shard_read, "_BLOCK_ROWS", 3)
    rng = random.Random(0)
    traces = [
        structs.replace(whole_trace(f"t{i}"), events=tuple(event(seq) for seq in range(rng.randrange(20))))
        for i in range(12)
    ]
    seal(traces, tmp_path)
    assert list(read_sealed(tmp_path)) == traces
    assert list(read_sealed(tmp_path, ["t9", "t2"])) == [traces[2], traces[9]]


def test_large_rows_make_small_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_write, "_GROUP_BYTES", 1000)
    texts = [Payload.of(f"{i} " * 300) for i in range(10)]
    trace = Trace(header=header(), payloads={text.ref: text for text in texts})
    shard = seal([trace], tmp_path)
    pq = pytest.importorskip("pyarrow.parquet")
    assert pq.read_metadata(shard / "payloads.parquet").num_row_groups > 2
    assert list(read_sealed(tmp_path)) == [trace]


def test_a_directory_holds_several_shards(tmp_path: Path) -> None:
    first = seal([whole_trace("a"), whole_trace("b")], tmp_path)
    second = seal(iter([whole_trace("c")]), tmp_path)
    assert first != second
    assert sorted(sealed_ids(tmp_path)) == ["a", "b", "c"]
    assert {trace.trace_id for trace in read_sealed(tmp_path)} == {"a", "b", "c"}
    assert [trace.trace_id for trace in read_sealed(second)] == ["c"]
    assert list(read_sealed(tmp_path, ["b"], verify=False)) == [whole_trace("b")]
    verify_sealed(tmp_path)


def test_mistakes_are_said_clearly_and_leave_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="no trace to seal"):
        seal([], out)
    assert not out.exists()
    with pytest.raises(FormatError, match="holds no sealed traces"):
        list(read_sealed(tmp_path))
    with pytest.raises(FormatError, match="not a directory"):
        verify_sealed(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="'t' is already sealed"):
        seal([whole_trace(), whole_trace()], out)
    with pytest.raises(TraceError, match="column extra: JSON cannot hold"):
        seal([Trace(header=header(), events=(event(0, extra={"x": float("nan")}),))], out)
    with pytest.raises(TraceError, match="column tokens"):
        seal([Trace(header=header(), events=(event(0, tokens=2**70),))], out)
    assert not out.exists()
    seal([whole_trace()], out)
    with pytest.raises(UsageError, match="'t' is already sealed"):
        seal([whole_trace()], out)
    with pytest.raises(UsageError, match=r"'tt' is not sealed in .*Did you mean 't'"):
        list(read_sealed(out, ["tt"]))


def test_what_a_killed_seal_left_is_ignored_and_swept(tmp_path: Path) -> None:
    seal([whole_trace("a")], tmp_path)
    left = tmp_path / ".sealing-0123"
    left.mkdir()
    (left / "events.parquet").write_bytes(b"half")
    verify_sealed(tmp_path)
    assert sealed_ids(tmp_path) == ["a"]
    seal([whole_trace("b")], tmp_path)
    assert not left.exists()


def test_sealing_is_reproducible(tmp_path: Path) -> None:
    names = {seal([whole_trace("a"), whole_trace("b")], tmp_path / str(i)).name for i in range(2)}
    assert len(names) == 1


def test_pandas_polars_duckdb_and_datasets_open_the_files(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    datasets = pytest.importorskip("datasets")
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    shard = seal([whole_trace("a"), whole_trace("b")], tmp_path / "out")
    num_rows = {"traces": 2, "events": 4, "edges": 2, "calls": 4, "payloads": 6, "rewards": 2, "credits": 2}
    for kind, rows in num_rows.items():
        file = str(shard / f"{kind}.parquet")
        assert len(pd.read_parquet(file)) == rows
        assert len(pl.read_parquet(file)) == rows
        assert duckdb.execute(f"SELECT count(*) FROM '{file}'").fetchall() == [(rows,)]
        cache = str(tmp_path / "cache")
        assert len(datasets.load_dataset("parquet", data_files=file, cache_dir=cache)["train"]) == rows

    calls = pd.read_parquet(shard / "calls.parquet")
    assert calls.completion_ids[0].tolist() == [5, -7, 2**31 - 1]
    assert calls.logprobs[0].tolist() == [-0.1, -2.0, 0.0]
    assert calls.prompt_ids[0].tolist() == []
    assert calls.prompt_ids[1] is None
    events = pl.read_parquet(shard / "events.parquet")
    assert events["options"].to_list() == [["a", "b"], None, ["a", "b"], None]
    assert events["span"].to_list()[1] == {"start": 0, "stop": 2}
    assert json.loads(events["extra"][1]) == {"x": [1, None]}
    payloads = datasets.load_dataset(
        "parquet", data_files=str(shard / "payloads.parquet"), cache_dir=str(tmp_path / "cache")
    )["train"]
    assert payloads[0]["text"] == "found it " * 40
    assert payloads[1]["data"] == bytes(range(256))
    cost = f"SELECT sum(CAST(costs->>'tokens' AS DOUBLE)) FROM '{shard}/traces.parquet'"
    assert duckdb.execute(cost).fetchall() == [(24.0,)]


def _cut(shard: Path) -> None:
    path = shard / "events.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def _edit_manifest(shard: Path) -> None:
    path = shard / "manifest.json"
    path.write_text(path.read_text().replace('"rows": 2', '"rows": 3', 1))


def _reindent_manifest(shard: Path) -> None:
    path = shard / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text())))


def _swap_with_a_true_manifest(shard: Path) -> None:
    other = seal([whole_trace("other")], shard.parent / "elsewhere")
    for path in other.iterdir():
        shutil.copy(path, shard / path.name)


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (_cut, "events.parquet"),
        (lambda shard: (shard / "edges.parquet").unlink(), "edges.parquet"),
        (lambda shard: (shard / "manifest.json").unlink(), "manifest.json"),
        (lambda shard: (shard / "notes.txt").write_text("hi"), "notes.txt"),
        (lambda shard: (shard / "calls.parquet").write_bytes(b""), "calls.parquet"),
        (lambda shard: (shard / "manifest.json").write_bytes(b""), "manifest.json"),
        (_edit_manifest, "manifest.json"),
        (_reindent_manifest, "manifest.json"),
        (_swap_with_a_true_manifest, "manifest.json"),
    ],
)
def test_damage_names_the_file(tmp_path: Path, damage: Callable[[Path], object], file: str) -> None:
    shard = seal([whole_trace()], tmp_path)
    damage(shard)
    for read in (verify_sealed, lambda folder: list(read_sealed(folder))):
        with pytest.raises(CorruptError, match=file):
            read(tmp_path)


def test_a_newer_shard_says_so(tmp_path: Path) -> None:
    shard = seal([whole_trace()], tmp_path).rename(tmp_path / "renamed")
    verify_sealed(shard)
    manifest = json.loads((shard / "manifest.json").read_text())
    newer = Manifest(version=2, files=manifest["files"])
    (shard / "manifest.json").write_bytes(newer.render())
    with pytest.raises(FormatError, match="version 2"):
        verify_sealed(shard)


def _flips(tmp_path: Path, count: int) -> None:
    """Any one bit, in any file of a shard, is detected with the file's name; then put back."""
    shard = seal([whole_trace(f"t{i}") for i in range(5)], tmp_path)
    files = sorted(shard.iterdir())
    sizes = [path.stat().st_size for path in files]
    rng = random.Random(1)
    for _ in range(count):
        (path,) = rng.choices(files, sizes)
        whole = path.read_bytes()
        bit = rng.randrange(len(whole) * 8)
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(CorruptError, match=path.name):
            verify_sealed(tmp_path)
        path.write_bytes(whole)
    verify_sealed(tmp_path)


def test_flipped_bits(tmp_path: Path) -> None:
    _flips(tmp_path, 400)


@pytest.mark.slow
def test_ten_thousand_flipped_bits(tmp_path: Path) -> None:
    _flips(tmp_path, 10_000)


def test_every_truncation(tmp_path: Path) -> None:
    shard = seal([whole_trace()], tmp_path)
    for path in shard.iterdir():
        whole = path.read_bytes()
        for length in range(0, len(whole), 37):
            path.write_bytes(whole[:length])
            with pytest.raises(CorruptError, match=path.name):
                verify_sealed(tmp_path)
        path.write_bytes(whole)


def test_a_shard_from_before_there_were_charges(tmp_path: Path) -> None:
    before = structs.replace(whole_trace(), charges=())
    shard = seal([before], tmp_path)
    known = read_manifest(shard)
    (shard / "charges.parquet").unlink()
    files = {name: entry for name, entry in known.files.items() if name != "charges.parquet"}
    old = structs.replace(known, files=files)
    (shard / "manifest.json").write_bytes(old.render())
    shard.rename(tmp_path / old.shard_name)
    (found,) = read_sealed(tmp_path)
    assert found == before
    assert main(["query", str(tmp_path), "SELECT count(*) FROM charges"]) == 0
