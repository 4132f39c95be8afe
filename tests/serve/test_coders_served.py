"""The real Claude Code and Codex through the endpoint: the tree from their headers is the one from their files.

And without the headers: the tree from their prompts is the same.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coder_files import arrows, imported
from coders import BIN, claude, codex
from msgspec.structs import replace
from scripted_coders import Block, Script
from served_coders import ScriptedBackend

from baton.connect.readers.claude_code.source import ClaudeCode
from baton.connect.readers.codex.source import Codex
from baton.serve.server import Serving
from baton.serve.session_trace import session_trace
from baton.serve.sessions import ProgramSession
from baton.trace.trace import Trace
from baton.trace.validation import validate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BIN is None, reason="BATON_CODERS names no folder; type: make test-coders"),
]


def agent(name: str, play: str, **fields: Any) -> Block:
    told = {"description": name, "prompt": f"do PLAY:{play}", "subagent_type": "general-purpose"}
    return ("Agent", {**told, **fields})


def served(script: Script, folder: Path, run: Any) -> tuple[ProgramSession, Path]:
    with Serving(folder / "served", ScriptedBackend(script)) as serving:
        place = run(SimpleNamespace(url=f"{serving.address}/s/coder"))
        session = serving.end_session("coder")
    return session, place


def traced(session: ProgramSession, *, headers: bool) -> Trace:
    exchanges = [one if headers else replace(one, headers={}) for one in session.exchanges]
    trace = session_trace(exchanges, session.posted, [], name="coder")
    assert validate(trace) == []
    return trace


def tree(trace: Trace) -> set[tuple[str, str]]:
    """Spawns by the harness's own ids."""
    keys = {**trace.header.meta["connect"]["agents"], "main": "main"}
    return {(keys[parent], keys[child]) for parent, child in arrows(trace, "spawn")}


def returned(trace: Trace) -> list[str]:
    return sorted(trace.text(event.content_ref) or "" for event in trace.events if event.type == "return")


def test_claude_code_has_the_tree_of_its_files(tmp_path: Path) -> None:
    here = {"run_in_background": False}
    script: Script = {
        "main": [
            ["looking", ("Bash", {"command": "echo hi"})],
            [agent("one", "one", **here)],
            [agent("left", "same", **here), agent("right", "same", **here)],
            [agent("boss", "boss", **here)],
            [agent("late", "late")],
            ["waiting"],
            ["all done"],
        ],
        "one": [["hm", ("Bash", {"command": "echo one"})], ["one's answer"]],
        "same": [["first answer"], ["second answer"]],
        "boss": [[agent("helper", "helper", **here)], ["boss's answer"]],
        "helper": [["helper's answer"]],
        "late": [[("Bash", {"command": "sleep 1"})], ["late's answer"]],
    }
    session, place = served(script, tmp_path, lambda at: claude(at, tmp_path / "home", ["begin PLAY:main"]))
    (files,) = imported(ClaudeCode(), place)[0]
    told = traced(session, headers=True)
    assert tree(told) == tree(files)
    assert len(tree(told)) == 6
    assert sorted(arrows(told, "spawn")) == sorted(arrows(files, "spawn"))
    assert returned(told) == returned(files)
    assert {event.why for event in told.events if event.type == "spawn"} == {None}
    by_words = traced(session, headers=False)
    assert len(by_words.calls) == len(told.calls) == len(files.calls)
    assert returned(by_words) == returned(files)
    assert sorted(to for _, to in arrows(by_words, "spawn")) == sorted(to for _, to in arrows(files, "spawn"))
    assert all(event.why for event in by_words.events if event.type == "spawn")


@pytest.mark.parametrize("version", [1, 2])
def test_codex_has_the_tree_of_its_files(version: int, tmp_path: Path) -> None:
    spaces = {1: "multi_agent_v1/", 2: "collaboration/"}
    space, wait = spaces[version], {"timeout_ms": 20000}
    spawn: list[Block] = [
        (space + "spawn_agent", {"message": f"do PLAY:{name}"}) for name in ("left", "right")
    ]
    main: list[list[Block]] = [
        ["looking", ("exec_command", {"cmd": "echo hi"})],
        spawn,
        [(space + "wait_agent", {**wait, "targets": ["$agent0"]})],
        [(space + "wait_agent", {**wait, "targets": ["$agent1"]})],
        [(space + "send_input", {"target": "$agent0", "message": "more PLAY:left-more"})],
        [(space + "wait_agent", {**wait, "targets": ["$agent0"]})],
        ["all done"],
    ]
    features = "multi_agent = true"
    if version == 2:
        features = "multi_agent = true\nmulti_agent_v2 = true"
        for name, (_, arguments) in zip(("left", "right"), spawn, strict=True):
            arguments["task_name"] = name
        main[2:] = [
            [("exec_command", {"cmd": "sleep 1"})],
            [(space + "wait_agent", dict(wait))],
            [(space + "followup_task", {"target": "left", "message": "more PLAY:left-more"})],
            [("exec_command", {"cmd": "sleep 1"})],
            ["all done"],
        ]
    script: Script = {
        "main": main,
        "left": [["hm", ("exec_command", {"cmd": "echo l"})], ["left's answer"]],
        "right": [["right's answer"]],
        "left-more": [["left more"]],
    }
    session, place = served(
        script, tmp_path, lambda at: codex(at, tmp_path / "home", features, ["begin PLAY:main"])
    )
    (files,) = imported(Codex(), place / "sessions")[0]
    told = traced(session, headers=True)
    assert tree(told) == tree(files)
    assert sorted(arrows(told, "spawn")) == sorted(arrows(files, "spawn"))
    assert returned(told) == returned(files) == ["left more", "left's answer", "right's answer"]
    assert arrows(told, "message") == arrows(files, "message")
    by_words = traced(session, headers=False)
    assert len(arrows(by_words, "spawn")) == 2
    assert returned(by_words) == returned(files)
