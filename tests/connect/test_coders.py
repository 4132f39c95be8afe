"""The real Claude Code and Codex, offline against a scripted model: their sessions against hand-written truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from coder_files import arrows, counts, imported
from coders import BIN, claude, codex
from scripted_coders import Block, Script, ScriptedModel

from baton.connect.readers.claude_code.source import ClaudeCode
from baton.connect.readers.codex.source import Codex
from baton.trace.trace import Trace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BIN is None, reason="BATON_CODERS names no folder; type: make test-coders"),
]


def agent(name: str, play: str, **fields: Any) -> Block:
    return (
        "Agent",
        {"description": name, "prompt": f"do PLAY:{play}", "subagent_type": "general-purpose", **fields},
    )


def bash(command: str) -> Block:
    return ("Bash", {"command": command})


def of(traces: list[Trace], spawns: bool) -> Trace:
    return next(trace for trace in traces if bool(arrows(trace, "spawn")) == spawns)


def bill(model: ScriptedModel, *, besides: set[tuple[str, int]] = frozenset()) -> tuple[int, int, int]:  # type: ignore[assignment]  # an empty one
    """Answers, tokens of input and of output, as the server billed them, `besides` some (play, turn)."""
    own = [one for one in model.billed if (one["play"], one["turn"]) not in besides]
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return (
        len(own),
        sum(one.get(part, 0) for one in own for part in parts),
        sum(one["output_tokens"] for one in own),
    )


def held(trace: Trace) -> tuple[int, int, int]:
    found = counts(trace)
    return found["calls"], found["in"], found["out"]


def test_claude_code_with_agents_in_pairs_nested_and_late(tmp_path: Path) -> None:
    here = {"run_in_background": False}
    script: Script = {
        "main": [
            ["looking", bash("echo hi"), ("Read", {"file_path": "/nowhere/missing.txt"})],
            [agent("one", "one", **here)],
            [agent("left", "left", **here), agent("right", "right", **here)],
            [agent("boss", "boss", **here)],
            [agent("late", "late")],
            ["waiting"],
            ["all done"],
        ],
        "one": [["hm", bash("echo one")], ["one's answer"]],
        "left": [["left's answer"]],
        "right": [[bash("false"), bash("echo r")], ["right's answer"]],
        "boss": [[agent("helper", "helper", **here)], ["boss's answer"]],
        "helper": [["helper's answer"]],
        "late": [[bash("sleep 1")], ["late's answer"]],
        "again": [["back again"]],
    }
    with ScriptedModel(script) as model:
        place = claude(model, tmp_path / "home", ["begin PLAY:main"], ["-c", "more PLAY:again"])
    traces, _ = imported(ClaudeCode(), place)
    trace = of(traces, spawns=True)
    assert arrows(trace, "spawn") == [
        ("main", "one"), ("main", "left"), ("main", "right"), ("main", "boss"), ("boss", "helper"), ("main", "late"),
    ]  # fmt: skip
    returned = {
        event.agent: trace.text(event.content_ref) for event in trace.events if event.type == "return"
    }
    assert returned == {
        name: f"{name}'s answer" for name in ("one", "left", "right", "boss", "helper", "late")
    }
    tools = sorted((event.agent, event.status) for event in trace.events if event.type == "tool_result")
    assert tools == [
        ("late", "ok"), ("main", "failed"), ("main", "ok"), ("one", "ok"), ("right", "failed"), ("right", "ok"),
    ]  # fmt: skip
    assert held(trace) == bill(model)
    assert counts(trace)["human_intervention"] == 1
    who = {one["ids"].get("x-claude-code-agent-id", "main") for one in model.billed}
    assert len({call.agent for call in trace.calls}) == len(who) == 7


def test_claude_code_goes_on_with_a_finished_agent_compacts_and_forks(tmp_path: Path) -> None:
    script: Script = {
        "main": [
            [agent("early", "early"), agent("steady", "steady")],
            [bash("sleep 2")],
            [bash("sleep 1")],
            [("ToolSearch", {"query": "select:SendMessage", "max_results": 3})],
            [("SendMessage", {"to": "$agent0", "message": "once more PLAY:more", "summary": "more"})],
            ["waiting"],
            ["all done"],
        ],
        "early": [["early's answer"]],
        "steady": [["steady's answer"]],
        "more": [[bash("echo more")], ["the second answer"]],
        "forked": [["fork says hi"]],
    }
    with ScriptedModel(script) as model:
        place = claude(
            model, tmp_path / "home", ["begin PLAY:main"], ["-c", "/compact"], ["-c", "--fork-session", "x PLAY:forked"]
        )  # fmt: skip
    traces, report = imported(ClaudeCode(), place)
    trace, fork = of(traces, spawns=True), of(traces, spawns=False)
    assert sorted(arrows(trace, "spawn")) == [("main", "early"), ("main", "steady")]
    assert [event.agent for event in trace.events if event.type == "message"] == ["main"]
    asked = next(event.to for event in trace.events if event.type == "message")
    returned = [
        (event.agent, trace.text(event.content_ref)) for event in trace.events if event.type == "return"
    ]
    assert sorted(returned) == sorted(
        [("early", "early's answer"), ("steady", "steady's answer"), (asked, "the second answer")]
    )
    compacting = {("main", turn) for turn in range(7, 20)}  # its answers are not in the transcript
    fork_turns = {("forked", 0)}
    assert held(trace) == bill(model, besides=compacting | fork_turns)
    assert (
        held(fork)[1:]
        == bill(model, besides={(one["play"], one["turn"]) for one in model.billed} - fork_turns)[1:]
    )
    assert any(event.extra.get("compaction") for event in trace.events)
    assert report.joined["a return that arrived twice"] == 3


def first(name: str) -> Script:
    """The same team for both of Codex's ways to have one, but for the names of things."""
    return {
        "left": [["hm", ("exec_command", {"cmd": "echo l"})], ["left's answer"]],
        "right": [["right's answer"]],
        "again": [["back again"]],
        "left-more": [[f"{name} more"]],
    }


def test_codex_with_threads(tmp_path: Path) -> None:
    space = "multi_agent_v1/"
    script: Script = {
        "main": [
            ["looking", ("exec_command", {"cmd": "echo hi"}), ("exec_command", {"cmd": "false"})],
            [(space + "spawn_agent", {"message": "do PLAY:left"}),
             (space + "spawn_agent", {"message": "do PLAY:right", "fork_context": True})],
            [(space + "wait_agent", {"targets": ["$agent0"], "timeout_ms": 20000})],
            [(space + "wait_agent", {"targets": ["$agent1"], "timeout_ms": 20000})],
            [(space + "send_input", {"target": "$agent0", "message": "more PLAY:left-more"})],
            [(space + "wait_agent", {"targets": ["$agent0"], "timeout_ms": 20000})],
            [(space + "close_agent", {"target": "$agent1"})],
            ["all done"],
        ],
        **first("left"),
    }  # fmt: skip
    with ScriptedModel(script) as model:
        place = codex(
            model, tmp_path / "home", "multi_agent = true",
            ["begin PLAY:main"], ["resume", "--last", "more PLAY:again"],
        )  # fmt: skip
    for part in ("sessions", "bundles"):
        traces, report = imported(Codex(), place / part)
        (trace,) = traces
        left, right = (to for _, to in arrows(trace, "spawn"))
        returned = [
            (event.agent, trace.text(event.content_ref)) for event in trace.events if event.type == "return"
        ]
        assert sorted(returned) == sorted(
            [(left, "left's answer"), (right, "right's answer"), (left, "left more")]
        )
        assert arrows(trace, "message") == [("main", left)]
        assert [event.status for event in trace.events if event.type == "tool_result"].count("failed") == 1
        assert (counts(trace)["tool_call"], counts(trace)["despawn"]) == (3, 1)
        # "again" may reach the thread that was used last, as the program chooses: a person spoke to it.
        assert counts(trace)["human_intervention"] == 1
        assert held(trace) == bill(model)
        assert report.joined["a return that arrived twice"] >= 2


def test_codex_with_tasks_by_name(tmp_path: Path) -> None:
    space = "collaboration/"
    script: Script = {
        "main": [
            [(space + "spawn_agent", {"message": "do PLAY:left", "task_name": "left"}),
             (space + "spawn_agent", {"message": "do PLAY:right", "task_name": "right", "fork_turns": "all"})],
            [("exec_command", {"cmd": "sleep 1"})],
            [(space + "wait_agent", {"timeout_ms": 20000})],
            [(space + "followup_task", {"target": "left", "message": "more PLAY:left-more"})],
            [("exec_command", {"cmd": "sleep 1"})],
            ["all done"],
        ],
        **first("left"),
    }  # fmt: skip
    with ScriptedModel(script) as model:
        place = codex(
            model, tmp_path / "home", "multi_agent = true\nmulti_agent_v2 = true", ["begin PLAY:main"]
        )
    for part in ("sessions", "bundles"):
        traces, _ = imported(Codex(), place / part)
        (trace,) = traces
        assert arrows(trace, "spawn") == [("main", "left"), ("main", "right")]
        returned = [
            (event.agent, trace.text(event.content_ref)) for event in trace.events if event.type == "return"
        ]
        assert sorted(returned) == [
            ("left", "left more"),
            ("left", "left's answer"),
            ("right", "right's answer"),
        ]
        assert arrows(trace, "message") == [("main", "left")]
        assert counts(trace)["tool_call"] == 3
        assert held(trace) == bill(model)


def test_codex_with_a_thread_within_a_thread(tmp_path: Path) -> None:
    space = "multi_agent_v1/"
    wait: Block = (space + "wait_agent", {"targets": ["$agent0"], "timeout_ms": 20000})
    script: Script = {
        "main": [[(space + "spawn_agent", {"message": "do PLAY:boss"})], [wait], ["all done"]],
        "boss": [[(space + "spawn_agent", {"message": "do PLAY:helper"})], [wait], ["boss's answer"]],
        "helper": [["helper's answer"]],
    }
    with ScriptedModel(script) as model:
        features = "multi_agent = true\n[agents]\nmax_depth = 3"
        place = codex(model, tmp_path / "home", features, ["begin PLAY:main"])
    for part in ("sessions", "bundles"):
        (trace,) = imported(Codex(), place / part)[0]
        (_, boss), (by, helper) = arrows(trace, "spawn")
        assert by == boss
        returned = {event.agent: (event.to, trace.text(event.content_ref)) for event in trace.events
                    if event.type == "return"}  # fmt: skip
        assert returned == {boss: ("main", "boss's answer"), helper: (boss, "helper's answer")}
        assert held(trace) == bill(model)
