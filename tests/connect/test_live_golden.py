"""Journals that real frameworks' recorders wrote, by version: what they tell must stay what it was.

They come from the programs in tests/connect/frameworks (with BATON_CONNECT_GOLDEN=tests/golden/connect), where the same
truth is checked by hand on the framework itself.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from connect_story import spent, story

import baton
from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.seen_journal import read_journal
from baton.trace.formats.jsonl import encode_trace

GOLDEN = Path(__file__).parents[1] / "golden" / "connect"

TRUTH: dict[str, dict[str, list[str]]] = {
    "openai-agents-0.24.0": {
        "lead": ["hands over to scout"],
        "scout": ['uses lookup: {"q":"France"}', "gets lookup: Paris", "decides to stop: Paris"],
    },
    "google-adk-2.13.0": {
        "boss": [
            "spawns scout: capital?",
            "spawns other: second?",
            "aggregates other, scout (inferred)",
            "decides to stop: both",
        ],
        "scout": ['uses lookup: {"q": "France"}', "gets lookup: Paris", "returns to boss: Paris"],
        "other": ["returns to boss: Lyon"],
    },
    "ag2-1.2.1": {
        "lead": [
            "spawns scout: capital?",
            "spawns other: second?",
            "aggregates other, scout (inferred)",
            "decides to stop: both",
        ],
        "scout": ['uses lookup: {"q":"France"}', "gets lookup: Paris", "returns to lead: Paris"],
        "other": ["returns to lead: Lyon"],
    },
    "autogen-agentchat-0.7.5": {
        "SwarmGroupChatManager": [
            "decides to delegate to lead",
            "decides to delegate to scout",
            "decides to delegate to scout",
            "decides to delegate to lead",
            "decides to stop",
        ],
        "lead": ["hands over to scout", "says to all"],
        "scout": ["uses lookup", "gets lookup", "says to all", "hands over to lead"],
    },
    "crewai-1.15.30": {
        "geography": ["spawns lead", "decides to stop"],
        "lead": ["spawns scout", "returns to geography"],
        "scout": ["uses lookup", "gets lookup", "returns to lead"],
    },
    "langgraph-1.2.20": {
        "lead": [
            "spawns plan",
            "spawns worker",
            "spawns worker-2",
            "spawns worker-3",
            "spawns merge",
            "decides to stop",
        ],
        "plan": ["returns to lead"],
        "worker": ["returns to lead"],
        "worker-2": ["returns to lead"],
        "worker-3": ["returns to lead"],
        "merge": ["aggregates worker, worker-2, worker-3", "returns to lead"],
    },
}
TOKENS = {
    "openai-agents-0.24.0": {"lead": [(11, 3)], "scout": [(40, 7), (55, 2)]},
    "google-adk-2.13.0": {"boss": [(10, 7), (30, 7)], "scout": [(10, 7), (30, 7)], "other": [(10, 7)]},
    "ag2-1.2.1": {"lead": [(20, 5), (44, 6)], "scout": [(20, 5), (30, 2)], "other": [(12, 1)]},
    "autogen-agentchat-0.7.5": {"lead": [(20, 5), (31, 2)], "scout": [(20, 5), (20, 5)]},
}


def test_every_framework_has_one() -> None:
    assert {path.name.removesuffix(".seen.jsonl") for path in GOLDEN.glob("*.seen.jsonl")} == set(TRUTH)


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_it_tells_what_it_told(name: str) -> None:
    report = ImportReport()
    (trace,) = assemble(read_journal(GOLDEN / f"{name}.seen.jsonl", report), report)
    assert baton.validate(trace) == []
    told = story(trace)
    whole = any(":" in line for lines in TRUTH[name].values() for line in lines)
    if not whole:
        told = {agent: [line.partition(":")[0] for line in lines] for agent, lines in told.items()}
    assert told == TRUTH[name]
    if name in TOKENS:
        assert spent(trace) == TOKENS[name]
    assert trace.header.system == " ".join(name.rsplit("-", 1))
    assert not report.skipped
    assert not report.mended


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_shuffled_and_doubled_it_is_the_same_trace(name: str) -> None:
    sightings = list(read_journal(GOLDEN / f"{name}.seen.jsonl", ImportReport()))
    (trace,) = assemble(sightings)
    mixed = sightings * 2
    random.Random(name).shuffle(mixed)
    (again,) = assemble(mixed)
    assert b"".join(encode_trace(again)) == b"".join(encode_trace(trace))


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_cut_anywhere_it_is_the_part_that_is_there(name: str, tmp_path: Path) -> None:
    """A program that is killed: every prefix of its journal, also in the middle of a line, gives a valid trace."""
    whole = (GOLDEN / f"{name}.seen.jsonl").read_bytes()
    for number, at in enumerate(range(0, len(whole), max(1, len(whole) // 25))):
        path = tmp_path / f"{number}.seen.jsonl"
        path.write_bytes(whole[:at])
        report = ImportReport()
        for trace in assemble(read_journal(path, report), report):
            assert [each for each in baton.validate(trace) if each.code != "structure/unfinished"] == []
        assert not report.skipped
