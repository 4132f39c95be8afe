"""Whatever a file went through, every shipped reader gives the same trace or one clear line: never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from golden_connect import PLACES

from baton.cli import main
from baton.connect.assemble import Assembler
from baton.connect.import_report import ImportReport
from baton.connect.importing import find_source, import_traces, recognised
from baton.connect.readers import SOURCES
from baton.errors import BatonError
from baton.trace.validation.checks import validate

ALL = [find_source(kind) for kind in SOURCES]
HOSTILE = (
    "\ud800", "\x00\x1b[2J", "9" * 5000, "NaN", "e" * 70_000, "../../../etc/passwd", "‮evil", "", " ", "-1", "null",
)  # fmt: skip


def twisted(value: object, draw: Random, depth: int = 0) -> object:
    """The same document with some values replaced by what nobody expects there."""
    if draw.random() < 0.05:
        odd: list[object] = [
            None,
            [],
            {},
            True,
            -1,
            1e308,
            10**400,
            float("nan"),
            draw.choice(HOSTILE),
            [[[]]],
            {"": {}},
        ]
        return draw.choice(odd)
    if isinstance(value, dict):
        return {key: twisted(each, draw, depth + 1) for key, each in value.items() if draw.random() > 0.02}
    if isinstance(value, list):
        return [twisted(each, draw, depth + 1) for each in value for _ in range(draw.choice((1, 1, 1, 2)))]
    return value


@pytest.mark.parametrize("place", [p for p in PLACES if p.suffix != ".eval"], ids=lambda p: p.name)
def test_twisted_values(place: Path, tmp_path: Path) -> None:
    """Of every file, versions in which any value may be of any type."""
    (source, *_) = recognised(place, ALL)
    for seed in range(5):
        draw = Random(seed)
        copy = tmp_path / f"{seed}" / place.name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if not path.is_file():
                continue
            at = copy / path.relative_to(place) if place.is_dir() else copy
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(_twisted_file(path, draw))
        report = ImportReport()
        assembler = Assembler(source.kind, report)
        try:
            assembler.see(source.read(copy, report))
        except BatonError as error:
            told = str(error)
        else:
            told = ""
        assert "\n" not in told
        for trace in assembler.traces():
            problems = [
                p
                for p in validate(trace)
                if p.code not in ("structure/unfinished", "meaning/return-to-stranger")
            ]
            assert problems == [], (seed, problems[:3])


def _twisted_file(path: Path, draw: Random) -> bytes:
    text = path.read_text(errors="replace")
    if path.suffix == ".jsonl":
        return "\n".join(
            _dumped(twisted(json.loads(line), draw)) for line in text.splitlines() if line
        ).encode("utf-8", "surrogatepass")
    if path.suffix == ".json":
        return _dumped(twisted(json.loads(text), draw)).encode("utf-8", "surrogatepass")
    return text[: draw.randint(0, len(text))].encode()


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.name)
def test_commands_on_every_golden(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is imported is shown, counted and measured; taint follows tools that are named."""
    out = tmp_path / "out"
    assert main(["import", str(place), "--out", str(out)]) == 0
    (first, *_) = sorted(out.glob("*.jsonl"))
    tools = sorted(
        {e.tool for t in import_traces(place).traces for e in t.events if e.type == "tool_call" and e.tool}
    )
    for command in (["show", str(first)], ["stats", str(out)], ["measure", str(out)], ["validate", str(out)]):
        assert main(command) == 0, command
    if tools:
        assert (
            main(["measure", str(out), "--safety", "--untrusted", tools[0], "--consequential", tools[-1]])
            == 0
        )
    assert "Traceback" not in capsys.readouterr().err
