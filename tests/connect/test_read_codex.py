"""Codex's rollouts and bundles: what each form of each version says, and golden sessions against hand-written truth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from coder_files import arrows, counts, imported, rollout, stamp

from baton.connect.readers.codex.source import Codex
from baton.errors import CorruptError
from baton.testing.check_sources import check_source
from baton.trace.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden" / "connect"
V1, V2, BUNDLE = GOLDEN / "codex-0.166.0-v1", GOLDEN / "codex-0.166.0-v2", GOLDEN / "codex-0.166.0-bundle"


def one(place: Path) -> Trace:
    traces, _ = imported(Codex(), place)
    assert len(traces) == 1
    return traces[0]


def words(trace: Trace, type: str) -> list[str | None]:
    return [trace.text(event.content_ref) for event in trace.events if event.type == type]


def billed(answers: int) -> dict[str, int]:
    """The scripted server bills answer n with 1100 n tokens of input and 7 n of output."""
    whole = answers * (answers + 1) // 2
    return {"calls": answers, "in": 1100 * whole, "out": 7 * whole}


@pytest.mark.parametrize("place", [V1, BUNDLE])
def test_agents_that_are_waited_for_written_to_closed_and_resumed(place: Path) -> None:
    trace = one(place)
    assert arrows(trace, "spawn") == [("main", "Hegel"), ("main", "Galileo"), ("Hegel", None)]
    assert [event.status for event in trace.events if event.type == "spawn"] == ["ok", "ok", "failed"]
    assert sorted(zip(arrows(trace, "return"), words(trace, "return"), strict=True)) == [
        (("Galileo", "main"), "right's answer"), (("Hegel", "main"), "left's second answer"),
    ]  # fmt: skip
    assert arrows(trace, "message") == [("main", "Hegel")]
    assert [event.to for event in trace.events if event.type == "despawn"][-1] == "Hegel"
    waits = [event.agent for event in trace.events if event.decision == "wait"]
    assert sorted(waits) == ["Hegel", "main", "main", "main"]
    found = counts(trace)
    assert {name: found[name] for name in ("calls", "in", "out")} == billed(15)
    assert (found["tool_call"], found["tool_result"], found["human_intervention"]) == (1, 1, 1)


def test_agents_with_paths_and_letters() -> None:
    trace = one(V2)
    assert arrows(trace, "spawn") == [("main", "left"), ("main", "right"), ("left", None)]
    assert sorted(zip(arrows(trace, "return"), words(trace, "return"), strict=True)) == [
        (("left", "main"), "left's answer"), (("left", "main"), "left's second answer"),
        (("right", "main"), "right's answer"),
    ]  # fmt: skip
    sent = [(event.to, event.decision) for event in trace.events if event.type == "message"]
    assert sent == [("left", "communicate"), ("left", "delegate")]
    found = counts(trace)
    assert {name: found[name] for name in ("calls", "in", "out")} == billed(16)
    assert (found["tool_call"], found["tool_result"]) == (3, 3)
    assert not [event for event in trace.events if event.inferred and event.type != "aggregate"]


def test_a_result_that_arrives_twice_is_one_return() -> None:
    _, report = imported(Codex(), V1)
    assert report.joined["a return that arrived twice"] == 3
    assert report.skipped["a copy of another thread's history"] == 9


@pytest.mark.parametrize("places", [(V1, V2), (BUNDLE,)])
def test_whatever_happens_to_the_files(places: tuple[Path, ...]) -> None:
    check_source(Codex(), *places, bears=("shuffled", "doubled", "strange lines"))


@pytest.mark.parametrize("places", [(V1, V2), (BUNDLE,)])
def test_wherever_the_files_are_cut(places: tuple[Path, ...]) -> None:
    check_source(Codex(), *places, bears=("cut",))


def test_one_file_of_a_session_finds_the_others() -> None:
    path = next(path for path in V1.rglob("*.jsonl") if "c2cf" in path.name)
    assert counts(one(path)) == counts(one(V1))


# Forms of older versions.

META = ("session_meta", {"id": "t1", "cli_version": "0.77.0", "source": "cli"})
CONTEXT = ("turn_context", {"model": "gpt-x"})


def item(type: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "response_item", {"type": type, **fields}


def said(role: str, text: str) -> tuple[str, dict[str, Any]]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def tokens(total: tuple[int, int], last: tuple[int, int] | None) -> tuple[str, dict[str, Any]]:
    def usage(pair: tuple[int, int]) -> dict[str, int]:
        return {"input_tokens": pair[0], "output_tokens": pair[1], "total_tokens": sum(pair)}

    info = {"total_token_usage": usage(total), **({} if last is None else {"last_token_usage": usage(last)})}
    return "event_msg", {"type": "token_count", "info": info}


def test_bills_that_repeat_are_not_counted_and_one_may_come_after_the_results(tmp_path: Path) -> None:
    path = tmp_path / "rollout-t1.jsonl"
    path.write_text(rollout(
        META, CONTEXT, said("user", "<environment_context>x</environment_context>"), said("user", "sum it"),
        ("event_msg", {"type": "token_count", "info": None}),
        item("reasoning", summary=[]), said("assistant", "on it"),
        item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1"),
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2"),
        item("function_call_output", call_id="c1", output='{"output": "a", "metadata": {"exit_code": 2}}'),
        tokens((100, 10), (100, 10)), tokens((100, 10), (100, 10)),
        item("custom_tool_call_output", call_id="c2", output="ok"),
        item("web_search_call", status="completed", action={"type": "search", "query": "q"}),
        said("assistant", "done"), tokens((250, 15), (150, 5)), tokens((250, 15), (150, 5)),
        ("compacted", {"message": "the story so far"}), tokens((330, 35), None),
    ))  # fmt: skip
    trace = one(path)
    # The answer, the compaction, and the call that the compaction was billed as.
    assert counts(trace) == {
        "tool_call": 3, "tool_result": 2, "orchestrator_decision": 3, "calls": 3, "in": 330, "out": 35,
    }  # fmt: skip
    assert trace.header.task_id == "sum it"
    assert [event.status for event in trace.events if event.type == "tool_result"] == ["failed", "ok"]
    assert [call.policy for call in trace.calls] == ["gpt-x"] * 3


def test_lines_without_an_envelope(tmp_path: Path) -> None:
    """The form of 2025's summer: the session's line first, then items by themselves, without dates."""
    lines: list[dict[str, Any]] = [
        {"id": "t0", "timestamp": "2025-07-01T10:00:00.000Z", "instructions": "be brief"},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list it"}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a b"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a and b"}]},
    ]
    path = tmp_path / "rollout-2025-07-01-t0.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert Codex().recognises(path)
    trace = one(path)
    assert counts(trace) == {
        "tool_call": 1,
        "tool_result": 1,
        "orchestrator_decision": 1,
        "calls": 2,
        "in": 0,
        "out": 0,
    }
    assert [call.prompt_tokens for call in trace.calls] == [None, None]  # not written then


def test_a_child_that_repeats_its_parents_history_counts_its_own_turns(tmp_path: Path) -> None:
    parent, child = "019b0000-0000-7000-8000-000000000001", "019b0000-1000-7000-8000-000000000002"
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1, "agent_nickname": "Ada"}}}
    head = ("session_meta", {"id": parent, "cli_version": "0.98.0", "source": "cli"})
    turn = ("turn_context", {"turn_id": "019b0000-0001-7000-8000-00000000000a", "model": "m"})
    history = [
        turn, said("user", "go"), item("function_call", name="shell", arguments="{}", call_id="c1"),
        item("function_call_output", call_id="c1", output="x"), tokens((50, 5), (50, 5)),
    ]  # fmt: skip
    (tmp_path / f"rollout-1-{parent}.jsonl").write_text(rollout(
        head, *history,
        item("function_call", name="spawn_agent", arguments='{"message": "help", "agent_type": "w"}', call_id="c2"),
        ("event_msg", {"type": "collab_agent_spawn_end", "call_id": "c2", "new_thread_id": child}),
        item("function_call_output", call_id="c2", output=json.dumps({"agent_id": child})), tokens((120, 9), (70, 4)),
        item("function_call", name="wait", arguments=json.dumps({"ids": [child]}), call_id="c3"),
        item("function_call_output", call_id="c3", output=json.dumps({"status": {child: {"completed": "helped"}}})),
        tokens((200, 12), (80, 3)), said("assistant", "thanks"), tokens((290, 20), (90, 8)),
    ))  # fmt: skip
    own = [
        ("turn_context", {"turn_id": "019b0000-1001-7000-8000-00000000000b", "model": "m"}), said("user", "help"),
        said("assistant", "helped"), tokens((110, 11), (60, 6)),
        ("event_msg", {"type": "task_complete", "last_agent_message": "helped"}),
    ]  # fmt: skip
    copied = rollout(("session_meta", {"id": child, "source": spawn}), head, *history)
    later = rollout(*[META] * 7, *own).splitlines(keepends=True)[7:]
    (tmp_path / f"rollout-2-{child}.jsonl").write_text(copied + "".join(later))
    trace = one(tmp_path)
    assert arrows(trace, "spawn") == [("main", "Ada")]
    assert arrows(trace, "return") == [("Ada", "main")]
    assert (counts(trace)["in"], counts(trace)["out"]) == (290 + 60, 20 + 6)
    assert [event.agent for event in trace.events if event.type == "tool_call"] == ["main"]


def test_an_agent_whose_rollout_is_not_there_returns_where_it_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "rollout-t1.jsonl"
    notice = '{"agent_id":"t9","status":{"completed":"helped"}}'
    path.write_text(rollout(
        META, said("user", "go"),
        item("function_call", name="spawn_agent", arguments='{"message": "help"}', call_id="c2"),
        item("function_call_output", call_id="c2", output='{"agent_id": "t9", "nickname": "Ada"}'),
        item("function_call", name="wait_agent", arguments='{"targets": ["t9"]}', call_id="c3"),
        item("function_call_output", call_id="c3", output='{"status": {"t9": {"completed": "helped"}}}'),
        said("user", f"<subagent_notification>\n{notice}\n</subagent_notification>"),
        said("assistant", "thanks"),
    ))  # fmt: skip
    trace = one(path)
    assert words(trace, "return") == ["helped"]
    assert counts(trace)["spawn"] == 1
    assert "human_intervention" not in counts(trace)


def test_packed_rollouts(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    plain = rollout(META, said("user", "go"), said("assistant", "done"), tokens((5, 2), (5, 2))).encode()
    path = tmp_path / "rollout-t1.jsonl.zst"
    with pyarrow.CompressedOutputStream(str(path), "zstd") as out:
        out.write(plain)
    assert counts(one(path))["in"] == 5
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CorruptError, match="not a whole zstd file"):
        imported(Codex(), path)


def test_a_bundle_that_points_out_of_itself_is_not_followed(tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(sorted(BUNDLE.iterdir())[0], copy)
    log = copy / "trace.jsonl"
    log.write_text(log.read_text().replace('"payloads/', '"../payloads/'))
    traces, report = imported(Codex(), copy)
    assert report.skipped["an answer whose payload is not there"] > 0
    assert not any(trace.calls for trace in traces)


def test_files_without_numbers_bear_shuffling_where_dates_tell_them_apart(tmp_path: Path) -> None:
    path = tmp_path / "rollout-t1.jsonl"
    text = rollout(
        META, CONTEXT, said("user", "go"), item("function_call", name="x", arguments="{}", call_id="c"),
        item("function_call_output", call_id="c", output="1"), said("assistant", "done"), tokens((9, 3), (9, 3)),
    )  # fmt: skip
    assert stamp(3) in text
    path.write_text(text)
    check_source(Codex(), path)


def test_a_bundle_beside_its_rollouts_is_not_told_again(tmp_path: Path) -> None:
    shutil.copytree(V1, tmp_path / "sessions")
    shutil.copytree(BUNDLE, tmp_path / "bundles")
    (trace,), report = imported(Codex(), tmp_path)
    assert counts(trace) == counts(one(V1))
    assert report.skipped["a bundle of a session whose rollouts are here and tell it"] == 2


def test_a_bill_that_only_the_total_shows_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rollout-t1.jsonl"
    path.write_text(rollout(
        META, CONTEXT, said("user", "sum it"), said("assistant", "on it"), tokens((100, 7), (100, 7)),
        said("user", "go on"), said("assistant", "more"), tokens((450, 40), (150, 13)),
        said("user", "and"), said("assistant", "last"), tokens((500, 41), (50, 1)),
    ))  # fmt: skip
    traces, report = imported(Codex(), path)
    assert (counts(traces[0])["in"], counts(traces[0])["out"]) == (300, 21)
    told = "a total grew by more than its last bill: a bill between is not in the file, nor counted"
    assert report.mended == {told: 1}
    assert report.places[told] == ["rollout-t1.jsonl:8"]
