"""Inspect's logs: the ZIP read by hand, and a team's sample by hand-written truth."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers import zstd
from baton.connect.readers.inspect_eval import zip_entries as zips
from baton.connect.readers.inspect_eval.source import InspectSource
from baton.errors import CorruptError, UsageError
from baton.trace.outcome import answer_of
from baton.trace.trace import Trace
from baton.trace.validation import validate

LOG = Path(__file__).parents[1] / "golden" / "connect" / "inspect-0.3.285.eval"


def read(place: Path) -> tuple[list[Trace], ImportReport]:
    report = ImportReport()
    traces = assemble(InspectSource().read(place, report), report, kind="inspect")
    assert [problem for trace in traces for problem in validate(trace)] == []
    return traces, report


def content() -> dict[str, bytes]:
    with LOG.open("rb") as file:
        return {entry.name: zips.unpacked(file, entry) for entry in zips.zip_entries(file, LOG)}


def repacked(path: Path, method: int, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def test_a_team_of_lead_searchers_and_critic() -> None:
    """Spawns, returns, tools and tokens as the script of the run had them."""
    (trace,), report = read(LOG)
    assert report.entries == 59
    assert not report.skipped
    spawns = [(event.agent, event.to) for event in trace.events if event.type == "spawn"]
    assert spawns == [("lead", "searcher"), ("lead", "searcher-2"), ("lead", "critic")]
    returns = [
        (event.agent, event.to, trace.text(event.content_ref))
        for event in trace.events
        if event.type == "return"
    ]
    assert returns == [
        ("searcher", "lead", "Oslo has 700000"), ("searcher-2", "lead", "Bern has 134000"), ("critic", "lead", None),
    ]  # fmt: skip
    tools = [(event.agent, event.tool) for event in trace.events if event.type == "tool_call"]
    assert tools == [
        ("searcher", "lookup"), ("searcher", "submit"), ("searcher-2", "lookup"), ("searcher-2", "submit"),
        ("critic", "submit"), ("lead", "submit"),
    ]  # fmt: skip
    assert trace.costs["tokens"] == 752 + 76
    assert answer_of(trace) == "834000"
    assert [reward.value for reward in trace.rewards] == [1.0]
    assert trace.header.meta["gold"] == {"answer": "834000"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_other_packings_give_the_same(tmp_path: Path, method: int) -> None:
    assert read(repacked(tmp_path / "log.eval", method, content()))[0] == read(LOG)[0]


def test_a_json_log_gives_the_same(tmp_path: Path) -> None:
    parts = content()
    header = json.loads(parts["header.json"])
    log = {**header, "samples": [json.loads(parts["samples/cities_epoch_1.json"])]}
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert read(tmp_path / "log.json")[0] == read(LOG)[0]


def test_zstd_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "_WAYS", {})
    with pytest.raises(UsageError, match=r"packed with zstd.*Type: pip install"):
        read(LOG)


@pytest.mark.parametrize("name", list(zstd._WAYS))
def test_every_module_that_knows_zstd(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip(name, exc_type=ImportError)
    monkeypatch.setattr(zstd, "_WAYS", {name: zstd._WAYS[name]})
    assert len(read(LOG)[0]) == 1


def test_a_log_without_its_end_gives_the_samples_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "cut.eval"
    path.write_bytes(LOG.read_bytes()[:-300])
    traces, report = read(path)
    assert [event.type for event in traces[0].events] == [event.type for event in read(LOG)[0][0].events]
    assert report.skipped["the end of a document that is cut off or damaged"] == 1


@pytest.mark.parametrize("size", [10, 20])
def test_a_cut_log_is_one_line(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.eval"
    path.write_bytes(LOG.read_bytes()[:size])
    with pytest.raises((CorruptError, UsageError)) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_sample_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    parts = content()
    sample = json.loads(parts["samples/cities_epoch_1.json"])
    parts["samples/cities_epoch_2.json"] = json.dumps({**sample, "uuid": "other", "epoch": 2}).encode()
    path = repacked(tmp_path / "log.eval", zipfile.ZIP_STORED, parts)
    raw = bytearray(path.read_bytes())
    place = raw.index(b"population of Oslo", raw.index(b"samples/cities_epoch_1.json"))
    raw[place : place + 4] = b"PoPU"
    path.write_bytes(raw)
    traces, report = read(path)
    assert [trace.header.meta["inspect"]["epoch"] for trace in traces] == [2]
    assert report.skipped["an entry of a log that is damaged"] == 1


def test_sizes_beyond_32_bits_are_read() -> None:
    extra = struct.pack("<HHQQQ", 1, 24, 2**33, 2**34, 2**35)
    assert zips._wide(extra, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF) == (2**34, 2**33, 2**35)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = zlib.compress(b"0" * 10_000_000, 9)[2:-4]
    path = repacked(
        tmp_path / "log.eval", zipfile.ZIP_STORED, {**content(), "samples/b.json": b"x" * len(bomb)}
    )
    raw = path.read_bytes().replace(b"x" * len(bomb), bomb)
    with path.open("wb") as file:
        file.write(raw)
    _, report = read(path)
    assert report.skipped["an entry of a log that is damaged"] == 1


def sample(**more: Any) -> dict[str, Any]:
    return {
        "id": "s", "epoch": 1, "uuid": "u", "input": [{"role": "user", "content": "go"}], "target": ["a", "b"],
        "completed_at": "2026-01-01T00:00:00+00:00", "events": [], **more,
    }  # fmt: skip


def model(uuid: str, span: str | None, text: str = "ok", **usage: int) -> dict[str, Any]:
    output = {
        "choices": [{"message": {"role": "assistant", "content": text}, "stop_reason": "stop"}],
        "usage": usage,
    }
    return {"event": "model", "uuid": uuid, "span_id": span, "model": "m", "input": [], "output": output}


def begin(id_: str, kind: str, name: str, parent: str | None = None) -> dict[str, Any]:
    return {"event": "span_begin", "id": id_, "type": kind, "name": name, "parent_id": parent}


def test_repeated_handoffs_are_one_agent_and_nested_agents_are_concluded(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        begin("L", "agent", "lead"),
        model("m0", "L", total_tokens=9, output_tokens=2),
    ]
    for n in (1, 2):
        tool = {"event": "tool", "uuid": f"t{n}", "span_id": "L", "id": f"c{n}", "function": "transfer_to_critic",
                "agent": "critic", "arguments": {}, "result": "ok", "events": []}  # fmt: skip
        events += [
            begin(f"H{n}", "handoff", "critic", "L"), begin(f"T{n}", "tool", "transfer_to_critic", f"H{n}"), tool,
            begin(f"A{n}", "agent", "critic", f"T{n}"),
            model(f"m{n}", f"A{n}", f"verdict {n}", input_tokens=3, output_tokens=1),
            {"event": "span_end", "id": f"A{n}"},
        ]  # fmt: skip
    events += [begin("N", "agent", "inner", "L"), model("m9", "N", "deep"), {"event": "span_end", "id": "N"}]
    events += [
        model("mz", "L", "all good"),
        {"event": "span_end", "id": "L"},
        {"event": "model", "pending": True},
    ]
    log = {
        "version": 2,
        "eval": {"eval_id": "e"},
        "samples": [sample(events=events, scores={"s": {"value": "A"}})],
    }
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    (trace,), report = read(path)
    sent = [(e.type, e.to, e.inferred) for e in trace.events if e.type in ("spawn", "message")]
    assert sent == [("spawn", "critic", False), ("message", "critic", False), ("spawn", "inner", True)]
    returns = [(e.agent, trace.text(e.content_ref)) for e in trace.events if e.type == "return"]
    assert returns == [("critic", "verdict 1"), ("critic", "verdict 2"), ("inner", None)]
    assert answer_of(trace) == "all good"
    by_id = {call.agent: (call.prompt_tokens, call.completion_tokens) for call in trace.calls[:2]}
    assert by_id == {"lead": (7, 2), "critic": (3, 1)}
    assert report.skipped == {"an event that had not finished": 1, "a score that is no number": 1}


def test_the_form_of_2024_with_a_transcript(tmp_path: Path) -> None:
    events = [
        {"event": "input", "input": "typed by hand"},
        model("m", None, "tc://h", total_tokens=5, output_tokens=2),
    ]
    old = sample(events=None, uuid=None, transcript={"events": events, "content": {"h": "the long answer"}})
    log = {
        "version": 2,
        "status": "success",
        "eval": {"run_id": "r", "task": "t", "task_id": "k"},
        "samples": [old],
    }
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    assert InspectSource().recognises(path)
    (trace,), _ = read(path)
    assert answer_of(trace) == "the long answer"
    assert [event.type for event in trace.events] == ["human_intervention", "orchestrator_decision"]
    assert trace.trace_id == "inspect-k-s-1"


def test_a_sample_without_events_is_told_by_its_messages(tmp_path: Path) -> None:
    use = {"id": "call-7", "function": "look_up", "arguments": {"city": "Bergen"}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "how many?"},
        {"role": "assistant", "content": "", "tool_calls": [use], "model": "m-1"},
        {"role": "tool", "tool_call_id": "call-7", "function": "look_up", "content": "291,940"},
        {"role": "tool", "tool_call_id": "nobody's", "content": "late", "error": {"message": "gone"}},
        "no message",
        {"role": "assistant", "content": [{"type": "text", "text": "291,940 people"}]},
    ]
    sample = {
        "id": 3, "epoch": 1, "uuid": "s3", "input": "how many?", "target": "", "messages": messages,
        "output": {"completion": "291,940 people"},
    }  # fmt: skip
    log = tmp_path / "log.json"
    log.write_text(
        json.dumps({"version": 2, "status": "success", "eval": {"run_id": "r"}, "samples": [sample]})
    )
    (trace,), report = read(log)
    acts = [(e.type, e.tool, e.decision, e.status, trace.text(e.content_ref)) for e in trace.events]
    assert acts == [
        ("tool_call", "look_up", "none", "ok", '{"city":"Bergen"}'),
        ("tool_result", "look_up", "none", "ok", "291,940"),
        ("tool_call", "unnamed", "none", "ok", "{}"),
        ("tool_result", "unnamed", "none", "failed", "late"),
        ("orchestrator_decision", None, "stop", "ok", "291,940 people"),
    ]
    first, second = trace.calls
    assert (first.policy, second.policy) == ("m-1", None)
    assert first.completion_tokens is None
    assert json.loads(trace.text(first.prompt_ref) or "") == [
        {"speaker": "system", "text": "be brief"}, {"speaker": "user", "text": "how many?"},
    ]  # fmt: skip
    assert report.entries == len(messages)
    assert report.joined["a sample told by its messages, as its events were not kept"] == 1
    assert report.skipped == {"a message that is none": 1}
