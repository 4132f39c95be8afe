from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton.cli import main
from baton.trace.recorder import Recorder

GOLDEN = sorted(map(str, (Path(__file__).parents[1] / "golden" / "v1").glob("*.jsonl")))


def stats(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert main(["stats", *map(str, args)]) == 0
    return capsys.readouterr().out


def row(out: str, label: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith(f"{label}  ")]
    return line[len(label) :].split()


def untimed(path: Path, num_messages: int) -> Path:
    with Recorder(path, task_id="t") as team:
        a, b = team.agent("a"), team.agent("b")
        for _ in range(num_messages):
            a.send(b, "x")
    return path


def test_a_few_traces_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = stats(capsys, *GOLDEN[:2], untimed(tmp_path / "a.jsonl", 3))
    assert row(out, "topology") == ["centralized", "debate", "unknown"]
    assert row(out, "events") == ["15", "17", "3"]
    assert row(out, "tokens") == ["116", "129", "not", "measured"]
    assert row(out, "parallelism")[2:] == ["not", "measured"]
    assert row(out, "  tool_call")[2] == "0"


def test_many_traces_by_their_spread(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = [untimed(tmp_path / f"{n}.jsonl", n) for n in (1, 2, 3, 4, 100)]
    out = stats(capsys, GOLDEN[0], *paths)
    assert out.splitlines()[0].split() == ["6", "traces", "median", "min", "max"]
    assert row(out, "events") == ["3.5", "1", "100"]
    assert row(out, "tokens") == ["116", "116", "116", "(5", "not", "measured)"]
    assert row(out, "topology") == ["unknown", "5,", "centralized", "1"]
    assert "trace id" not in out


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = json.loads(stats(capsys, "--json", *GOLDEN, untimed(tmp_path / "a.jsonl", 1)))
    assert len(found["traces"]) == 7
    assert found["traces"][0]["trace_id"] == "golden-centralized"
    assert found["traces"][-1]["tokens"] is None
    assert found["spread"]["tokens"]["measured"] == 6
    assert found["spread"]["events"] == {"median": 15, "min": 1, "max": 28, "measured": 7}


def test_nothing_to_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["stats", str(tmp_path / "empty.jsonl")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_names_from_a_trace_cannot_take_effect(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Recorder(tmp_path / "a.jsonl", task_id="\x1b[31m", trace_id="a\nb") as team:
        team.agent("x", role="\x07").stop()
        team.reward("shared", 1.0, name="\r")
    out = stats(capsys, tmp_path / "a.jsonl")
    assert out.replace("\n", "").isprintable()
    assert row(out, "trace id") == ["a\\nb"]
