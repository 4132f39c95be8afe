"""The transcript: everything that was said, once and in order, with what was thought, and no more than was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import arbitrary_traces, valid_traces
from viewer_runs import hostile, odd, run_team

from baton.trace import Payload, Recorder, Trace, read
from baton.view.web.transcript import CUT_CHARACTERS, PAGE, Transcript


@given(st.one_of(valid_traces(), arbitrary_traces()))
def test_every_event_stands_in_it_once_and_in_order(trace: Trace) -> None:
    found = Transcript(trace).page(whole=True)
    assert [entry["row"] for entry in found["entries"]] == list(range(len(trace.events)))
    assert found["total"] == len(trace.events)


def test_what_was_said_thought_and_asked() -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    entries = Transcript(trace).page()["entries"]
    first, second = entries[:2]
    assert first["said"]["text"] == "sum the numbers in shards 1 2"
    assert first["thought"] == "There are 4 shards, which can be read at once."
    assert first["system"].startswith("You are orchestrator")
    assert (first["prompt_tokens"], first["completion_tokens"]) == (236, 35)
    assert second["thought"] is second["system"] is second["prompt_tokens"] is None, "told once, at its call"
    openings = [entry["agent"] for entry in entries if entry["system"] is not None]
    assert len(openings) == len(set(openings)) == 7


def test_one_agent_and_the_page_an_event_stands_on() -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    book = Transcript(trace)
    mine = book.page(agent="lead2")
    assert {entry["agent"] for entry in mine["entries"]} == {"lead2"}
    assert book.page(agent="nobody")["entries"] == []
    events = tuple(
        structs.replace(trace.events[0], id=f"e{n}", seq=n, call=None, span=None) for n in range(3 * PAGE + 7)
    )
    long = Transcript(structs.replace(trace, events=events, edges=(), rewards=(), credits=()))
    assert [long.page(around=at)["start"] for at in (0, PAGE - 1, PAGE, 3 * PAGE + 6)] == [
        0,
        0,
        PAGE,
        3 * PAGE,
    ]
    assert len(long.page(start=3 * PAGE)["entries"]) == 7
    assert long.page(start=10_000)["entries"] == []


def test_thoughts_that_other_systems_recorded() -> None:
    with Recorder(None, task_id="t") as team:
        lead = team.agent("lead")
        worker = lead.spawn("w", task="look")
        lead.send(worker, "hello", extra={"thinking": "I should greet"})
        lead.send(worker, "again", extra={"call_extra": {"reasoning_content": "once more"}, "thought": 3})
        worker.returns("x")
        lead.stop("x")
    found = [entry["thought"] for entry in Transcript(team.trace()).page()["entries"]]
    assert [thought for thought in found if thought is not None] == ["I should greet", "once more"]


def test_what_is_long_is_cut_and_what_is_withheld_says_so(tmp_path: Path) -> None:
    hostile(tmp_path / "h.jsonl")
    trace = read(tmp_path / "h.jsonl")
    (long,) = [e for e in Transcript(trace).page()["entries"] if e["said"] and "characters" in e["said"]]
    assert len(long["said"]["text"]) == CUT_CHARACTERS
    whole = Transcript(trace).page(whole=True)["entries"][long["row"]]["said"]
    assert len(whole["text"]) == long["said"]["characters"] > 300_000
    empty = Transcript(trace.without_payloads()).page()["entries"]
    assert all(entry["said"] is None or "why_not" in entry["said"] for entry in empty)


@pytest.mark.parametrize(
    "prompt", ['{"a": 1}', "[" * 3000, "[1, null]", "not json", '[{"speaker": "system"}]', ""]
)
def test_prompts_of_any_form_take_nothing_away(prompt: str) -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    payload = Payload.of(prompt)
    calls = tuple(structs.replace(call, prompt_ref=payload.ref) for call in trace.calls)
    strange = structs.replace(trace, calls=calls, payloads={**trace.payloads, payload.ref: payload})
    assert {entry["system"] for entry in Transcript(strange).page()["entries"]} == {None}
    for each in odd():
        Transcript(each).page()
