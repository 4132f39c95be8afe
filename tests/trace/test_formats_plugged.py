"""A trace format of another package: by a registered name, by module:attr, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import baton
from baton import registry
from baton.cli import main
from baton.errors import UsageError
from baton.trace.formats import Format, detect, encode, format_of_name, read, read_all, write
from baton.trace.formats.jsonl import read_jsonl

GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "swarm.jsonl"
MARK = b"#mine\n"


def rows(traces: Iterable[baton.Trace]) -> Iterator[bytes]:
    for trace in traces:
        for event in trace.events:
            yield f"{trace.trace_id},{event.seq},{event.agent}\n".encode()


def marked(traces: Iterable[baton.Trace]) -> Iterator[bytes]:
    yield MARK
    yield from encode(traces, "jsonl")


def unmarked(path: Path) -> Iterator[baton.Trace]:
    inner = path.with_name("inner.jsonl")
    inner.write_bytes(path.read_bytes().removeprefix(MARK))
    return read_jsonl(inner)


CSV = Format(name="csv", about="one row per event", endings=(".csv",), encode=rows)
MINE = Format(
    name="mine",
    about="lines with a mark",
    endings=(".mine",),
    encode=marked,
    read_all=unmarked,
    recognises=lambda head: head.startswith(MARK),
)
NO_FORMAT = "a string"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both under short names, for this test alone."""
    monkeypatch.setitem(registry._registered, "format", {})
    registry.register("format", "csv")(CSV)
    registry.register("format", "mine")(MINE)


@pytest.mark.usefixtures("named")
def test_a_name_that_is_registered_is_known_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(GOLDEN), str(tmp_path / "out"), "--to", "csv"]) == 0
    assert "csv, 1 trace" in capsys.readouterr().out
    baton.write(read(GOLDEN), tmp_path / "same.csv")
    assert (tmp_path / "same.csv").read_bytes() == (tmp_path / "out").read_bytes() != b""
    assert format_of_name("x.CSV") == "csv"
    assert main(["export", "csv", str(GOLDEN), "--out", str(tmp_path / "third")]) == 0
    assert (tmp_path / "third").read_bytes() == (tmp_path / "out").read_bytes()


@pytest.mark.usefixtures("named")
def test_a_format_that_is_recognised_is_read_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "x.mine"
    write(read(GOLDEN), path)
    assert detect(path) == "mine"
    assert read(path) == read(GOLDEN)
    assert main(["convert", str(path), str(tmp_path / "back.jsonl")]) == 0
    assert read(tmp_path / "back.jsonl") == read(GOLDEN)
    assert main(["stats", str(path)]) == 0


def test_a_format_by_module_and_attribute(tmp_path: Path) -> None:
    path = tmp_path / "x"
    baton.write(read(GOLDEN), path, format=f"{__name__}:MINE")
    assert list(read_all(path, f"{__name__}:MINE")) == [read(GOLDEN)]
    again, back = tmp_path / "again", tmp_path / "back.jsonl"
    assert main(["convert", str(GOLDEN), str(again), "--to", f"{__name__}:MINE"]) == 0
    assert again.read_bytes() == path.read_bytes()
    assert main(["convert", str(again), str(back), "--from", f"{__name__}:MINE"]) == 0
    assert read(back) == read(GOLDEN)


def test_what_is_no_format_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(GOLDEN), str(tmp_path / "out"), "--to", "csv"]) == 2
    told = capsys.readouterr().err
    assert "there is no format 'csv'" in told
    assert "Did you mean 'csv'" not in told
    assert main(["convert", str(GOLDEN), str(tmp_path / "out"), "--to", "jsonk"]) == 2
    assert "Did you mean 'jsonl'?" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"expected a baton\.trace\.formats\.Format"):
        write(read(GOLDEN), tmp_path / "out", format=f"{__name__}:NO_FORMAT")
    with pytest.raises(UsageError, match="cannot be read back"):
        read(GOLDEN, "chrome")
    with pytest.raises(UsageError, match="no text"):
        encode(read(GOLDEN), "sqlite")
