"""What was inferred says why, in every format; a return ends no life where the source says so; handoffs grow on."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from baton.errors import TraceError
from baton.trace.canonical import canonical_hash
from baton.trace.formats.chrome import to_chrome
from baton.trace.formats.files import read_all, write
from baton.trace.formats.survey.survey_read import from_survey
from baton.trace.formats.survey.survey_write import to_survey
from baton.trace.graph.lineage import Lineage
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace
from baton.trace.validation.checks import validate

WHY = "no entry names a parent"


def team() -> Trace:
    with Recorder(None, task_id="t", trace_id="odd Näme") as recorder:
        lead = recorder.agent("lead")
        lead.call(prompt_ids=(1, 2), completion_ids=(3,))
        scout = lead.spawn("scout", task="look", why=WHY)
        scout.call(prompt_ids=(1, 2, 3, 9), completion_ids=(4,), grows_from=lead)
        scout.returns("first", ends=False)
        lead.delegate(scout, "again")
        scout.returns("second", ends=False)
        lead.send(scout, "a third time")
        with scout.tool("search", {"q": "x"}) as call:
            call.result("found")
        lead.stop("done")
    return recorder.trace()


def test_a_verb_with_a_reason_is_inferred_and_so_are_its_edges() -> None:
    trace = team()
    spawn = next(event for event in trace.events if event.type == "spawn")
    assert (spawn.inferred, spawn.why) == (True, WHY)
    for edge in trace.edges:
        touches = spawn.id in (edge.src, edge.dst)
        assert (edge.inferred, edge.why) == (touches, WHY if touches else None)
    with Recorder(None, task_id="t") as recorder, pytest.raises(TraceError, match="why is empty"):
        recorder.agent("a").decide("wait", why="")


@pytest.mark.parametrize("name", ["t.jsonl", "t.db", "t.survey.json", "sealed"])
def test_reasons_survive_every_format(tmp_path: Path, name: str) -> None:
    trace = team()
    if name == "t.survey.json":
        (found,) = (from_survey(to_survey(trace)),)
    else:
        if name == "sealed":
            pytest.importorskip("pyarrow")
        write([trace], tmp_path / name, "parquet" if name == "sealed" else None)
        (found,) = read_all(tmp_path / name)
    assert [event.why for event in found.events] == [event.why for event in trace.events]
    assert {(e.src, e.dst): e.why for e in found.edges} == {(e.src, e.dst): e.why for e in trace.edges}
    slices = [each for each in to_chrome(trace)["traceEvents"] if each["ph"] == "X"]
    assert [each["args"].get("why") for each in slices] == [event.why for event in trace.events]


def test_a_reason_counts_in_the_hash_and_its_absence_changes_none() -> None:
    trace = team()
    recorded = structs.replace(trace, events=tuple(structs.replace(e, why=None) for e in trace.events))
    assert canonical_hash(recorded) != canonical_hash(trace)


def test_a_return_ends_no_life_and_a_handoff_grows_on() -> None:
    trace = team()
    assert validate(trace) == []
    scout = Lineage.of(trace)["scout"]
    last = max(event.seq for event in trace.events if event.agent == "scout")
    despawn = next(event for event in trace.events if event.type == "despawn")
    assert despawn.status == "cancelled"
    assert scout.died_seq == despawn.seq > last
    mine, others = trace.calls
    assert (others.parent, others.agent, others.keep) == (mine.id, "scout", 3)
    assert trace.prompt_ids(others).tolist() == [1, 2, 3, 9]


def test_without_a_despawn_a_life_lasts_to_its_last_event() -> None:
    trace = team()
    kept = tuple(event for event in trace.events if event.type != "despawn")
    cut = structs.replace(trace, events=kept)
    scout = Lineage.of(cut)["scout"]
    assert scout.died_seq == max(event.seq for event in kept if event.agent == "scout")
