"""A file that cannot grow: an error means that nothing was written, and what was acknowledged is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from baton.errors import UsageError
from baton.trace.formats import read
from baton.trace.formats.jsonl_writer import JsonlWriter
from baton.trace.recorder import Recorder
from baton.trace.trace import Header
from baton.trace.validation import validate

# The limit bites in the middle of a line, is lifted, and recording goes on.
PROGRAM = """
import json, resource, sys
from baton.errors import BatonError
from baton.trace.recorder import Recorder

path, limit = sys.argv[1], int(sys.argv[2])
kept, refused = [], 0
team = Recorder(path, task_id="t", trace_id="full")
lead = team.agent("lead")
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for number in range(400):
    if number == 300:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        kept.append(lead.decide("delegate", f"what was seen the {number}th time" + "." * (number % 7)))
    except BatonError:
        refused += 1
team.close()
print(json.dumps([kept, refused]))
"""


@pytest.mark.parametrize("limit", [5_000, 5_013, 40_000])
@pytest.mark.parametrize("suffix", [".jsonl", ".db"])
def test_acknowledged_is_readable_and_refused_is_not(tmp_path: Path, suffix: str, limit: int) -> None:
    if suffix == ".db":
        limit *= 20  # a store is larger before anything is in it
    path = tmp_path / f"run{suffix}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, str(limit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kept, refused = json.loads(done.stdout)
    assert refused > 0
    trace = read(path)
    assert [event.id for event in trace.events] == kept
    assert len({event.id for event in trace.events}) == len(trace.events)
    assert trace.finished
    assert validate(trace) == []


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    program = (
        "import sys; from baton.trace.recorder import Recorder; Recorder(sys.argv[1], task_id='t').agent('a')"
    )
    with Recorder(path, task_id="t") as team:
        team.agent("lead").decide("delegate", "one")
        done = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=False
        )
        assert "UsageError" in done.stderr
        assert "being written" in done.stderr
        with pytest.raises(UsageError, match="being written"):
            JsonlWriter(path, Header(trace_id="other", task_id="t"))
    assert len(read(path).events) == 1
    with Recorder(path, task_id="t", trace_id="next") as team:  # the first has let go of it
        team.agent("lead").decide("delegate", "two")
