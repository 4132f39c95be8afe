"""Traces with values that no trace can hold: every command says so in a line, or goes on without them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from baton.cli import main
from baton.errors import TraceError
from baton.trace import read
from baton.trace.formats.sqlite.store import write_store
from baton.trace.graph.arrays import Graph

HUGE = 10**30
READERS = (
    ["show"],
    ["show", "--events", "--text"],
    ["stats"],
    ["measure"],
    ["measure", "--safety"],
    ["advise"],
    ["reward", "--recipe", "parl", "--monitor"],
    ["credit"],
    ["query"],
)
WRITTEN = ("o.jsonl", "o.json", "o.db", "o/", "o.chrome.json", "o.mmd")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A good trace, record by record, and without the checksum that would tell of every change."""
    folder = tmp_path_factory.mktemp("good")
    assert main(["run", "shard-sum", "--out", str(folder / "run")]) == 0
    assert main(["convert", str(folder / "run"), str(folder / "good.jsonl")]) == 0
    made = [json.loads(line) for line in (folder / "good.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "crc"} for line in made]


def changed(lines: list[dict[str, Any]], kind: str, field: str, value: Any, folder: Path) -> Path:
    """A record of a kind with another value, in a file: the last; of payloads the first, which is compressed."""
    places = [n for n, line in enumerate(lines) if line["kind"] == kind]
    odd = places[0 if kind == "payload" else -1]
    made = [{**line, field: value} if n == odd else line for n, line in enumerate(lines)]
    path = folder / "odd.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in made))
    return path


def every_command(path: Path) -> list[list[str]]:
    folder = path.parent
    return [
        *([command, str(path), *more] for command, *more in READERS),
        ["export", "html", str(path), "--out", str(folder / "o.html"), "--force"],
        *(["convert", str(path), f"{folder}/{name}", "--force"] for name in WRITTEN),
    ]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("event", "seq", HUGE),
        ("event", "seq", -HUGE),
        ("event", "seq", 10**4000),
        ("event", "t", 1e308),
        ("event", "tokens", HUGE),
        ("event", "duration_s", 1e308),
        ("payload", "size", HUGE),
        ("payload", "size", -1),
        ("reward", "value", 1e308),
        ("end", "costs", {"tokens": 1e308, "wall_clock_s": -1.0}),
        ("end", "counts", {"event": HUGE}),
    ],
)
def test_no_number_ends_in_a_traceback(
    lines: list[dict[str, Any]],
    kind: str,
    field: str,
    value: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = changed(lines, kind, field, value, tmp_path)
    for args in every_command(path):
        code = main(args)
        error = capsys.readouterr().err.strip()
        assert code in (0, 2), args
        assert code == 0 or len(error.splitlines()) == 1, args


@pytest.mark.parametrize(
    ("t", "duration"), [(1e308, 1e308), (-1e308, 1.7e308), (9.3e18, None), (0.0, -1e308)]
)
def test_times_that_no_clock_shows_in_all_events(
    lines: list[dict[str, Any]],
    t: float,
    duration: float | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "odd.jsonl"
    made = [{**line, "t": t, "duration_s": duration} if line["kind"] == "event" else line for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in made))
    for args in [*every_command(path), ["validate", str(path)]]:
        code = main(args)  # a warning of numpy's is an error here
        out = capsys.readouterr()
        assert code in (0, 1, 2), args
        assert code != 2 or len(out.err.strip().splitlines()) == 1, args
        assert args[0] not in ("show", "stats", "measure") or max(map(len, out.out.splitlines())) < 500, args


@pytest.mark.parametrize("t", [math.inf, -math.inf, math.nan])
def test_times_that_are_no_numbers_in_a_store(
    lines: list[dict[str, Any]], t: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = read(path)
    events = tuple(structs.replace(event, t=t, duration_s=t) for event in trace.events)
    write_store([structs.replace(trace, events=events)], tmp_path / "odd.db")
    for args in (["show"], ["stats"], ["measure"]):
        assert main([*args, str(tmp_path / "odd.db")]) in (0, 2), args
    assert main(["validate", str(tmp_path / "odd.db")]) == 1
    assert "shape/not-finite" in capsys.readouterr().out


def test_what_needs_the_order_names_the_event_that_has_none(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(lines, "event", "seq", HUGE, tmp_path)
    assert main(["stats", str(path)]) == 0  # goes on with what does not need it
    with pytest.raises(TraceError, match=rf"has seq {HUGE}; expected an integer .* baton validate FILE"):
        _ = Graph.of(read(path)).seq
    capsys.readouterr()
    assert main(["validate", str(path)]) == 1
    assert "shape/too-large" in capsys.readouterr().out


@pytest.mark.parametrize(
    "meta", [{"run": 5}, {"run": "x"}, {"run": []}, {"run": {"task": 5}}, {"train": 5}, {"run": None}, {}]
)
def test_what_a_header_says_in_another_form_is_left_aside(
    lines: list[dict[str, Any]], meta: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(lines, "trace", "meta", meta, tmp_path)
    for args in (
        ["show", str(path)],
        ["stats", str(path)],
        ["advise", str(path)],
        ["export", "html", str(path), "--out", str(tmp_path / "o.html"), "--force"],
    ):
        assert main(args) == 0, args
    assert main(["credit", str(path), "--unit", "team", "--estimator", "group"]) == 2  # a group of one
    capsys.readouterr()
    wrong = bool(meta.get("run") is not None or "train" in meta)
    assert main(["validate", str(path)]) == wrong
    assert ("shape/wrong-type" in capsys.readouterr().out) == wrong
