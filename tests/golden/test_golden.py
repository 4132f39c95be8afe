"""The golden traces: what version 1 wrote must be read for ever, and is written the same today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from make_golden import SCENES, V1, make

from baton.trace.formats import read
from baton.trace.formats.survey.survey_read import from_survey
from baton.trace.formats.survey.survey_write import to_survey
from baton.trace.graph.arrays import Graph
from baton.trace.validation import validate
from baton.trace.vocabulary import CREDIT_UNITS, DECISIONS, EVENT_TYPES, REWARD_FAMILIES, STATUSES, TOPOLOGIES

PATHS = sorted(V1.glob("*.jsonl"))
golden = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_there_is_one_for_each_topology() -> None:
    assert {path.stem for path in PATHS} == set(TOPOLOGIES) - {"mixed", "unknown"} == set(SCENES)


def test_made_again_they_are_the_same(tmp_path: Path) -> None:
    """But for the checksum on the end line, which the first writer did not know."""
    make(tmp_path)
    for path in PATHS:
        made = re.sub(rb',"crc":\d+}\n$', b"}\n", (tmp_path / path.name).read_bytes())
        assert made == path.read_bytes(), path.name


@golden
def test_valid(path: Path) -> None:
    assert validate(read(path)) == []


@golden
def test_survey_form(path: Path) -> None:
    trace = read(path)
    back = from_survey(to_survey(trace))
    assert back.events == trace.events
    assert back.edges == trace.edges
    assert set(back.rewards) == set(trace.rewards)


@golden
def test_complete(path: Path) -> None:
    trace = read(path)
    assert trace.header.topology == path.stem
    assert all(call.completion_ids and call.logprobs and trace.prompt_ids(call) for call in trace.calls)
    assert any(event.span for event in trace.events)
    assert len({reward.unit for reward in trace.rewards}) > 1
    assert len({credit.unit for credit in trace.credits}) > 1
    graph = Graph.of(trace)
    assert graph.span is not None
    assert graph.span <= trace.costs["wall_clock_s"]


def test_together_they_use_every_word() -> None:
    traces = [read(path) for path in PATHS]
    events = [event for trace in traces for event in trace.events]
    assert {event.type for event in events} == set(EVENT_TYPES)
    assert {event.status for event in events} == set(STATUSES)
    assert {event.decision for event in events} == set(DECISIONS)
    assert {reward.family for trace in traces for reward in trace.rewards} == set(REWARD_FAMILIES)
    assert {record.unit for trace in traces for record in (*trace.rewards, *trace.credits)} == set(
        CREDIT_UNITS
    )
    assert any(event.option_propensities for event in events)
