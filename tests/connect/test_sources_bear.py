"""Shuffled, doubled, cut, with strange lines, interleaved: the check of every source, on each format's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton.connect.readers import SOURCES
from baton.testing.check_sources import check_source

GOLDEN = Path(__file__).parents[1] / "golden" / "connect"


def test_atif(tmp_path: Path) -> None:
    lines = [
        json.dumps(json.loads((GOLDEN / f"atif-{version}.json").read_text()))
        for version in ("1.4", "1.7", "1.8")
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines))
    check_source(SOURCES["atif"], tmp_path / "runs.jsonl", GOLDEN / "atif-1.6")


def test_inspect() -> None:
    check_source(SOURCES["inspect"], GOLDEN / "inspect-0.3.285.eval", GOLDEN / "inspect-before-spans.json")


def test_who_and_when(tmp_path: Path) -> None:
    halves = [
        json.loads((GOLDEN / f"who-and-when-{half}.json").read_text()) for half in ("crafted", "generated")
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, halves)))
    check_source(SOURCES["who-and-when"], tmp_path / "runs.jsonl")


def test_mast(tmp_path: Path) -> None:
    runs = [json.loads((GOLDEN / f"mast-{kind}.json").read_text()) for kind in ("ag2", "hyperagent")]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, runs)))
    check_source(SOURCES["mast"], tmp_path / "runs.jsonl", GOLDEN / "mast-dataset.json")


def test_magentic_one() -> None:
    check_source(
        SOURCES["magentic-one"], GOLDEN / "magentic-one-log.jsonl", GOLDEN / "magentic-one-console.txt"
    )


def test_messages(tmp_path: Path) -> None:
    talk = json.loads((GOLDEN / "messages.json").read_text())
    rows = [{"messages": [*talk, {"role": "user", "content": f"more {n}"}]} for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    check_source(SOURCES["messages"], tmp_path / "rows.jsonl", GOLDEN / "messages.json")


def test_messages_one_to_a_line(tmp_path: Path) -> None:
    """Where lines stand is all that orders them, so that shuffled or doubled they are another conversation."""
    talk = json.loads((GOLDEN / "messages.json").read_text())
    (tmp_path / "talk.jsonl").write_text("\n".join(map(json.dumps, talk)))
    check_source(SOURCES["messages"], tmp_path / "talk.jsonl", bears=("cut",))


@pytest.mark.parametrize("place", sorted(GOLDEN.glob("otlp-*.jsonl")), ids=lambda place: place.stem)
def test_otlp(place: Path) -> None:
    check_source(SOURCES["otlp"], place)
