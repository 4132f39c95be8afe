"""How a file begins: with a byte order mark, in another encoding, packed, or not at all."""

from __future__ import annotations

import gzip
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from golden_connect import PLACES

from baton.cli import main
from baton.connect.assemble import Assembler
from baton.connect.import_report import ImportReport
from baton.connect.importing import find_source, recognised
from baton.connect.readers import SOURCES
from baton.trace.formats.jsonl import encode_trace

ALL = [find_source(kind) for kind in SOURCES]


@pytest.mark.parametrize("place", [p for p in PLACES if p.suffix != ".eval"], ids=lambda p: p.name)
def test_a_byte_order_mark_changes_nothing(place: Path, tmp_path: Path) -> None:
    """Some editors and shells put one before everything they write."""
    (source, *_) = recognised(place, ALL)
    copy, kept = tmp_path / place.name, []
    for mark in (b"", BOM_UTF8):
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file():
                at = copy / path.relative_to(place) if place.is_dir() else copy
                at.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_bytes()
                at.write_bytes((mark if text.lstrip()[:1] in (b"{", b"[") else b"") + text)
        assert source in recognised(copy, ALL)
        assembler = Assembler(source.kind, ImportReport())
        assembler.see(source.read(copy, ImportReport()))
        kept.append([b"".join(encode_trace(trace)) for trace in assembler.traces()])
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        ('[{"role": "user", "content": "hi"}]'.encode("utf-16"), "Type: iconv"),
        (gzip.compress(b'[{"role": "user", "content": "hi"}]'), "Type: gunzip"),
        (b"{}", "is of no kind"),
    ],
)
def test_why_a_file_is_of_no_kind(
    content: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a file.json"
    path.write_bytes(content)
    assert main(["import", str(path), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
