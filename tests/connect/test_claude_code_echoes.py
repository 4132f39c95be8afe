"""A session's file by itself: what it repeats of its agents' work, where their own transcripts are not beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coder_files import Transcript, arrows, counts, imported

from baton.connect.import_report import ImportReport
from baton.connect.importing import import_traces
from baton.connect.readers.claude_code.source import ClaudeCode
from baton.testing.check_sources import check_source
from baton.trace.formats.files import read_all
from baton.trace.trace import Trace

ASKED = {"prompt": "look for it", "description": "scout", "subagent_type": "Explore"}


def agents_own() -> Transcript:
    """The transcript of the agent: two answers with three tools between them, words that no echo has."""
    own = Transcript(agentId="a77", isSidechain=True)
    own.clock = 2.1
    own.user("look for it")
    own.says("x", "I begin", out=1)
    own.says("x", ("g1", "Grep", {"pattern": "q" * 90}), out=1)
    own.says("x", ("g2", "Glob", {"pattern": "**/*.odd"}), out=1)
    own.result("g1", "three lines")
    own.result("g2", "nothing", error=True)
    own.says("y", ("r1", "Read", {"file_path": "/z" * 60}), out=25)
    own.result("r1", "its text")
    own.says("z", "found", out=2)
    return own


def session(own: Transcript) -> Transcript:
    """The session's file, with an echo of every entry of the agent that calls a tool or answers one."""
    main = Transcript()
    main.user("find it")
    main.says("m1", ("t1", "Task", ASKED), out=400)
    for line in own.lines:
        content = line["message"]["content"]
        if isinstance(content, str) or content[0]["type"] != "text":
            main.clock = max(main.clock, 2.0)
            echo(main, line)
    told = {"status": "completed", "agentId": "a77", "content": [{"type": "text", "text": "found"}]}
    main.clock = 30.0
    main.result("t1", "found", toolUseResult=told)
    main.says("m2", "here it is", out=5)
    return main


def echo(main: Transcript, line: dict[str, Any]) -> None:
    inner = {key: line[key] for key in ("type", "message", "uuid", "timestamp")}
    data = {"type": "agent_progress", "agentId": "a77", "message": inner, "normalizedMessages": []}
    main.add(
        "progress", data=data, parentToolUseID="t1", toolUseID="agent_msg_1", timestamp=line["timestamp"]
    )


def read(place: Path) -> tuple[Trace, ImportReport]:
    traces, report = imported(ClaudeCode(), place)
    assert len(traces) == 1
    return traces[0], report


def test_an_agent_without_a_transcript_is_known_by_its_echoes(tmp_path: Path) -> None:
    trace, report = read(session(agents_own()).write(tmp_path / "s1.jsonl"))
    assert arrows(trace, "spawn") == [("main", "scout")]
    assert arrows(trace, "return") == [("scout", "main")]
    called = [(event.agent, event.tool) for event in trace.events if event.type == "tool_call"]
    assert called == [("scout", "Grep"), ("scout", "Glob"), ("scout", "Read")]
    results = [(event.tool, event.status) for event in trace.events if event.type == "tool_result"]
    assert sorted(results) == [("Glob", "failed"), ("Grep", "ok"), ("Read", "ok")]
    # Two of its three answers are echoed, 123 tokens asked each; what they said is counted nowhere.
    calls = [(call.prompt_tokens, call.completion_tokens) for call in trace.calls if call.agent == "scout"]
    assert calls == [(123, None), (123, None)]
    assert counts(trace)["in"] == 4 * 123
    assert counts(trace)["out"] == 405
    assert not any(event.inferred for event in trace.events)
    assert not any("progress" in reason for reason in report.skipped)


def test_echoes_add_nothing_to_a_transcript(tmp_path: Path) -> None:
    own = agents_own()
    alone = tmp_path / "alone"
    main = Transcript()
    main.lines = [line for line in session(own).lines if line["type"] != "progress"]
    main.write(alone / "s1.jsonl")
    own.write(alone / "s1" / "subagents" / "agent-a77.jsonl")
    both = tmp_path / "both"
    session(own).write(both / "s1.jsonl")
    own.write(both / "s1" / "subagents" / "agent-a77.jsonl")
    without, _ = read(alone)
    with_echoes, report = read(both)
    assert counts(with_echoes) == counts(without) == {
        "spawn": 1, "tool_call": 3, "tool_result": 3, "return": 1, "orchestrator_decision": 1, "calls": 5,
        "in": 5 * 123, "out": 405,
    }  # fmt: skip
    assert report.joined["an agent's entry that its transcript has and the session's file repeats"] == 7


def test_a_session_with_echoes_bears_shuffles_and_doubles(tmp_path: Path) -> None:
    session(agents_own()).write(tmp_path / "s1.jsonl")
    check_source(ClaudeCode(), tmp_path, bears=("shuffled", "doubled", "strange lines", "cut"))


def test_an_output_count_that_its_words_belie_is_told(tmp_path: Path) -> None:
    """Versions 2.0.74 to 2.1.52 end the main agent's answers with the count their stream began with."""
    script = Transcript()
    script.user("go")
    script.says("a", ("t1", "Bash", {"command": "x" * 300}), out=2)
    script.result("t1", "y")
    script.says("b", "short", out=2)
    script.says("c", "z" * 300, out=2, reason="end_turn")
    trace, report = read(script.write(tmp_path / "s1.jsonl"))
    assert [call.completion_tokens for call in trace.calls] == [2, 2, 2]
    told = "a count of output that its words belie, as its stream began with it: kept, and too low"
    assert report.mended == {told: 1}
    assert report.places[told] == ["s1.jsonl:2"]


def test_what_the_program_tells_a_team_is_no_message_of_an_agent(tmp_path: Path) -> None:
    """`system` writes to a lead that a teammate has gone: that is the teammate's end, and nobody's words."""
    lead = Transcript(version="2.1.81")
    lead.user("go")
    lead.says("a", ("t1", "Agent", {"prompt": "be o'dea", "name": "o'dea", "team_name": "crew"}))
    told = {"status": "teammate_spawned", "agent_id": "o'dea@crew"}
    lead.result("t1", "Spawned successfully.", toolUseResult=told)
    letter = '<teammate-message teammate_id="%s">\n%s\n</teammate-message>'
    lead.user(letter % ("o'dea", "all is well"))
    gone = '{"type":"teammate_terminated","message":"o\'dea has shut down."}'
    lead.user(letter % ("system", gone))
    lead.user(letter % ("system", '{"type":"another_note"}'))
    lead.says("b", "done")
    inbox = tmp_path / "teams" / "crew" / "inboxes" / "team-lead.json"
    inbox.parent.mkdir(parents=True)
    inbox.write_text(json.dumps([{"from": "system", "text": gone, "timestamp": "2026-03-01T12:00:05Z"}]))
    (tmp_path / "teams" / "crew" / "config.json").write_text(json.dumps({"leadSessionId": "s1"}))
    lead.write(tmp_path / "projects" / "p" / "s1.jsonl")
    trace, report = read(tmp_path)
    assert {event.agent for event in trace.events} == {"main", "o'dea"}
    assert arrows(trace, "message") == [("o'dea", "main")]
    assert arrows(trace, "despawn") == [("main", "o'dea")]
    assert report.skipped["a note of the program in the user's place"] == 1
    assert report.skipped["a note of the program in a team's inbox"] == 1


def test_what_an_editor_adds_is_not_what_a_person_says(tmp_path: Path) -> None:
    script = Transcript()
    opened = (
        "<ide_opened_file>The user opened the file /a.md. This may or may not be related.</ide_opened_file>"
    )
    chosen = "<ide_selection>The user selected lines 2 to 3:\nx < y\n</ide_selection>"
    for text in ("mend <b>it</b>", "and this", ""):
        blocks = [{"type": "text", "text": part} for part in (opened, chosen, text) if part]
        script.add("user", message={"role": "user", "content": blocks})
        script.says(f"a{text}", "done", reason="end_turn")
    trace, report = read(script.write(tmp_path / "s1.jsonl"))
    assert trace.header.task_id == "mend <b>it</b>"
    said = [trace.text(event.content_ref) for event in trace.events if event.type == "human_intervention"]
    assert said == ["and this"]
    assert report.skipped["a note of the program in the user's place"] == 1


def test_without_payloads_an_agent_is_not_called_by_what_was_said(tmp_path: Path) -> None:
    """What a call says its agent is for names the agent, and is the model's words: then its role does."""
    script = Transcript()
    script.user("go")
    secret = "read the mail of o'dea"
    calls = [
        (f"t{n}", "Task", {"prompt": "p", "description": secret, "subagent_type": role, **more})
        for n, (role, more) in enumerate([("Explore", {}), ("Explore", {}), (None, {"name": "ann"})])
    ]
    script.says("a", *calls)
    script.says("b", "done", reason="end_turn")
    place = script.write(tmp_path / "s1.jsonl")
    with_words = import_traces(place).traces[0]
    assert arrows(with_words, "spawn") == [("main", secret), ("main", f"{secret}-2"), ("main", "ann")]
    done = import_traces(place, payloads=False, out=tmp_path / "out")
    assert "o'dea" not in "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    kept = next(iter(read_all(done.files[0])))
    assert arrows(kept, "spawn") == [("main", "Explore"), ("main", "Explore-2"), ("main", "ann")]
