"""Every benchmark still runs: each has a `--smoke` that takes seconds and prints the shared table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from baton.trace.formats.survey.survey_write import to_survey
from baton.trace.records import Edge
from baton.trace.validation import validate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCHEMA = BENCHMARKS.parent / ".." / "shared" / "data" / "survey" / "trace_schema.json"
HEADING = "| what | value | against | value | ratio | machine | command |"
FIGURES = {
    ("trace_io.py",): (
        "durable append", "read JSON Lines", "read SQLite", "read sealed Parquet",
        "validate JSON Lines, all three levels", "validate JSON Lines, shape", "validate the survey's JSON",
        "build graph", "first cone", "cone, half the trace", "cone of about 100 events", "critical path",
        "resident", "growth",
    ),
    ("connect.py",): ("one session of", "claude-code", "read and assembled", "imported into a folder"),
    ("serve.py",): (
        "a call above GET /", "server's processor time a call", "read the body", "find what it grows from",
        "journal", "a whole prompt", "grown by a message",
    ),
    ("stragglers.py",): ("value of a fixed policy, cut, weighed", "trained, carry"),
    ("pipeline.py",): ("rounds of answers, groups side by side",),
    ("runtime.py", "--no-peers"): ("journal on", "memory", "resume", "fork", "sandbox"),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def peers() -> None:
    for peer in ("networkx", "jsonschema", "psutil", "pyarrow"):
        pytest.importorskip(peer)


@pytest.mark.parametrize("command", FIGURES, ids=lambda command: command[0])
def test_a_benchmark_runs_prints_every_figure_and_cleans_up(command: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    # torch makes this folder as it is imported, and keeps it.
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / command[0]), "--smoke", *command[1:]],
        capture_output=True, text=True, check=False, timeout=400, env={**os.environ, **kept, "TMPDIR": str(place)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    heading, rule, *lines = done.stdout.splitlines()
    assert heading == HEADING
    assert set(rule) == {"|", "-"}
    assert all(line.count(" | ") == HEADING.count(" | ") for line in lines)
    for figure in FIGURES[command]:
        assert any(figure in line.split(" | ")[0] for line in lines), figure
    assert not list(place.iterdir())


@pytest.mark.parametrize("num_events", [20, 101, 7_777])
def test_the_synthetic_trace_is_whole_and_valid(num_events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from team_trace import records, team_trace

    trace = team_trace(num_events)
    assert len(trace.events) == num_events
    assert validate(trace) == []
    assert trace == team_trace(num_events)
    assert [record for each in records(trace) for record in each if type(record) is Edge] == [*trace.edges]


def test_the_schema_in_place_of_the_surveys_refuses_what_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import jsonschema

    from survey_schema import schema_from_vocabulary
    from team_trace import team_trace

    if not SCHEMA.exists():
        pytest.skip(f"the survey's schema is not at {SCHEMA}")
    validators = [
        jsonschema.Draft202012Validator(schema)
        for schema in (schema_from_vocabulary(), json.loads(SCHEMA.read_bytes()))
    ]
    sound = to_survey(team_trace(50))
    for place, wrong in ((None, None), ("id", ""), ("t", -1), ("type", "none"), ("role", 3), ("trusted", 1)):
        event = sound["events"][3] | ({} if place is None else {place: wrong})
        given = sound | {"events": [*sound["events"][:3], event]}
        assert [each.is_valid(given) for each in validators] == [place is None] * 2, place
