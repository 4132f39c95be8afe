"""Claude Code's sessions: what each form of each version says, and the golden sessions against hand-written truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coder_files import Transcript, arrows, counts, imported

from baton.connect.readers.claude_code.source import ClaudeCode
from baton.testing.check_sources import check_source
from baton.trace.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden" / "connect"
AGENTS = GOLDEN / "claude-code-2.1.325-agents"
BACKGROUND = GOLDEN / "claude-code-2.1.325-background"


def one(place: Path) -> Trace:
    traces, _ = imported(ClaudeCode(), place)
    assert len(traces) == 1
    return traces[0]


def of_type(trace: Trace, type: str) -> list[str | None]:
    return [trace.text(event.content_ref) for event in trace.events if event.type == type]


# Truth of the golden sessions: what the script told the models to do, and what the scripted server billed
# (answer n: 100 + n fresh, 10 n written to the cache, 1000 n read from it, 7 n of output).


def billed(numbers: list[int]) -> tuple[int, int]:
    return sum(100 + 1010 * n + n for n in numbers), sum(7 * n for n in numbers)


def test_agents_in_the_foreground_in_pairs_nested_and_late() -> None:
    trace = one(AGENTS)
    assert arrows(trace, "spawn") == [
        ("main", "one"), ("main", "left"), ("main", "right"), ("main", "boss"), ("boss", "helper"), ("main", "late"),
    ]  # fmt: skip
    assert sorted(arrows(trace, "return")) == [
        ("boss", "main"), ("helper", "boss"), ("late", "main"), ("left", "main"), ("one", "main"), ("right", "main"),
    ]  # fmt: skip
    assert sorted(filter(None, of_type(trace, "return"))) == [
        "boss's answer", "helper's answer", "late's answer", "left's answer", "one's answer", "right's answer",
    ]  # fmt: skip
    tools = [(event.agent, event.tool, event.status) for event in trace.events if event.type == "tool_result"]
    assert sorted(tools) == [
        ("late", "Bash", "ok"), ("main", "Bash", "ok"), ("main", "Read", "failed"), ("main", "ToolSearch", "ok"),
        ("one", "Bash", "ok"), ("right", "Bash", "failed"), ("right", "Bash", "ok"),
    ]  # fmt: skip
    prompt, output = billed(list(range(1, 20)))
    assert counts(trace) == {
        "tool_call": 7, "tool_result": 7, "spawn": 6, "return": 6, "orchestrator_decision": 3, "aggregate": 1,
        "human_intervention": 1, "calls": 19, "in": prompt, "out": output,
    }  # fmt: skip
    assert {call.agent: 0 for call in trace.calls}.keys() == {
        "main",
        "one",
        "left",
        "right",
        "boss",
        "helper",
        "late",
    }


def test_what_is_inferred_is_the_fan_in_alone() -> None:
    trace = one(AGENTS)
    assert [event.type for event in trace.events if event.inferred] == ["aggregate"]
    returns = {event.id: event.agent for event in trace.events if event.type == "return"}
    edges = [
        (returns[edge.src], edge.inferred)
        for edge in trace.edges
        if edge.type == "return" and edge.src in returns
    ]
    assert sorted(edges) == [(name, False) for name in ("boss", "helper", "late", "left", "one", "right")]


def test_a_finished_agent_goes_on_and_returns_twice() -> None:
    traces, report = imported(ClaudeCode(), BACKGROUND)
    first = next(trace for trace in traces if arrows(trace, "spawn"))
    assert arrows(first, "spawn") == [("main", "early"), ("main", "steady")]
    assert arrows(first, "message") == [("main", "early")]
    returned = [
        (event.agent, first.text(event.content_ref)) for event in first.events if event.type == "return"
    ]
    assert sorted(returned) == [
        ("early", "early's answer"), ("early", "early's second answer"), ("steady", "steady's answer"),
    ]  # fmt: skip
    prompt, output = billed(list(range(1, 12)))
    assert (counts(first)["in"], counts(first)["out"]) == (prompt, output)
    assert report.joined["a return that arrived twice"] == 3


def test_a_forked_session_is_its_own_and_its_copies_are_billed_once() -> None:
    traces, _ = imported(ClaudeCode(), BACKGROUND)
    fork = next(trace for trace in traces if not arrows(trace, "spawn"))
    prompt, output = billed([14, 15])
    assert (counts(fork)["in"], counts(fork)["out"]) == (prompt, output)
    assert [call.prompt_tokens for call in fork.calls].count(
        None
    ) == 1  # the copy: its bill is another session's


def test_whatever_happens_to_the_files() -> None:
    check_source(ClaudeCode(), AGENTS, BACKGROUND, bears=("shuffled", "doubled", "strange lines"))


def test_wherever_the_files_are_cut() -> None:
    check_source(ClaudeCode(), AGENTS, BACKGROUND, bears=("cut",))


# Forms of older versions.


def test_an_answer_in_parts_is_billed_once_and_as_its_last_part_says(tmp_path: Path) -> None:
    script = Transcript()
    script.user("go")
    script.says("a", "thinking of it", out=4)
    script.says("a", ("t1", "Bash", {"command": "ls"}), out=4)
    script.says("a", ("t2", "Bash", {"command": "pwd"}), out=420)
    script.result("t2", "/")
    script.result("t1", "a b")
    script.says("b", "done", out=7)
    trace = one(script.write(tmp_path / "s1.jsonl"))
    assert counts(trace) == {"tool_call": 2, "tool_result": 2, "orchestrator_decision": 1, "calls": 2,
                             "in": 246, "out": 427}  # fmt: skip


def test_a_side_chain_within_the_file_is_an_agent(tmp_path: Path) -> None:
    """Before agents had files and ids: the side chain that opens with the prompt of a call is its agent."""
    script = Transcript(version="1.0.17")
    script.user("go")
    call = script.says(
        "a",
        ("t1", "Task", {"prompt": "count the odd ones", "description": "count", "subagent_type": "general"}),
    )
    side = script.user("count the odd ones", isSidechain=True, parentUuid=None)
    script.says("b", ("t2", "Bash", {"command": "wc"}), isSidechain=True, parentUuid=side)
    script.result("t2", "3", isSidechain=True)
    script.says("c", "there are 3", isSidechain=True, out=12)
    script.result("t1", "there are 3", parentUuid=call)
    script.says("d", "three")
    trace = one(script.write(tmp_path / "s1.jsonl"))
    assert arrows(trace, "spawn") == [("main", "count")]
    assert arrows(trace, "return") == [("count", "main")]
    spawn = next(event for event in trace.events if event.type == "spawn")
    assert spawn.inferred
    assert "opens with the prompt" in (spawn.why or "")
    assert [event.agent for event in trace.events if event.type == "tool_call"] == ["count"]


@pytest.mark.parametrize("beside", [True, False])
def test_an_agents_file_without_a_note_is_joined_by_what_the_result_says(
    tmp_path: Path, beside: bool
) -> None:
    script = Transcript(version="2.0.60")
    script.user("go")
    script.says("a", ("t1", "Task", {"prompt": "look", "description": "look about"}))
    child = Transcript(isSidechain=True, agentId="a1b2c3d", version="2.0.60")
    child.clock = script.clock
    child.user("look")
    child.says("b", "seen", out=6)
    script.clock = child.clock
    script.result(
        "t1", "seen", toolUseResult={"status": "completed", "agentId": "a1b2c3d", "totalTokens": 999}
    )
    script.says("c", "done")
    place = script.write(tmp_path / "s1.jsonl")
    child.write(tmp_path / "agent-a1b2c3d.jsonl" if beside else tmp_path / "s1/subagents/agent-a1b2c3d.jsonl")
    trace = one(place)
    assert arrows(trace, "spawn") == [("main", "look about")]
    assert not any(event.inferred for event in trace.events)
    assert counts(trace)["calls"] == 3
    assert counts(trace)["out"] == 26  # not 999, which is the last call's context


def test_counts_of_a_streams_beginning_are_no_counts(tmp_path: Path) -> None:
    script = Transcript()
    script.user("go")
    script.says("a", ("t1", "Task", {"prompt": "look", "description": "look about"}))
    child = Transcript(isSidechain=True, agentId="abc1234")
    child.user("look")
    child.says("b", ("t2", "Bash", {"command": "ls"}), out=3)
    child.result("t2", "x")
    child.says("c", "a long report " * 40, out=1)
    script.clock = child.clock
    script.result("t1", "a long report", toolUseResult={"status": "completed", "agentId": "abc1234"})
    script.says("d", "done", out=5)
    place = script.write(tmp_path / "s1.jsonl")
    child.write(tmp_path / "s1/subagents/agent-abc1234.jsonl")
    trace = one(place)
    assert {call.agent: call.completion_tokens for call in trace.calls if call.agent != "main"} == {
        "look about": None
    }
    assert sum(call.completion_tokens or 0 for call in trace.calls) == 15
    assert all(call.prompt_tokens == 123 for call in trace.calls)


def test_a_refused_spawn_makes_nobody(tmp_path: Path) -> None:
    script = Transcript()
    script.user("go")
    script.says("a", ("t1", "Task", {"prompt": "look", "subagent_type": "nobody"}))
    script.result("t1", "Agent type 'nobody' not found", error=True, toolUseResult="Error: not found")
    script.says("b", "alone then")
    trace = one(script.write(tmp_path / "s1.jsonl"))
    assert next((event.type, event.status) for event in trace.events) == ("spawn", "failed")
    assert {event.agent for event in trace.events} == {"main"}


def test_a_call_that_resumes_an_agent_is_no_second_spawn(tmp_path: Path) -> None:
    script = Transcript(version="2.0.70")
    script.user("go")
    script.says("a", ("t1", "Task", {"prompt": "look", "description": "look about"}))
    child = Transcript(isSidechain=True, agentId="abc1234")
    child.clock = script.clock
    child.user("look")
    child.says("b", "seen one", reason="end_turn")
    script.clock = child.clock
    script.result("t1", "seen one", toolUseResult={"status": "completed", "agentId": "abc1234"})
    script.says("c", ("t2", "Task", {"prompt": "look again", "resume": "abc1234"}))
    child.clock = script.clock
    child.user("look again")
    child.says("d", "seen two", reason="end_turn")
    script.clock = child.clock
    script.result("t2", "seen two", toolUseResult={"status": "completed", "agentId": "abc1234"})
    script.says("e", "done")
    place = script.write(tmp_path / "s1.jsonl")
    child.write(tmp_path / "s1/subagents/agent-abc1234.jsonl")
    trace = one(place)
    assert arrows(trace, "spawn") == [("main", "look about")]
    assert arrows(trace, "message") == [("main", "look about")]
    assert of_type(trace, "return") == ["seen one", "seen two"]


def test_output_of_a_task_and_its_notice_are_one_return(tmp_path: Path) -> None:
    script = Transcript(version="2.1.1")
    script.user("go")
    script.says(
        "a", ("t1", "Task", {"prompt": "look", "description": "look about", "run_in_background": True})
    )
    script.result("t1", "Async agent launched successfully.\nagentId: abc1234",
                  toolUseResult={"status": "async_launched", "isAsync": True, "agentId": "abc1234"})  # fmt: skip
    child = Transcript(isSidechain=True, agentId="abc1234")
    child.clock = script.clock
    child.user("look")
    child.says("b", "seen", reason="end_turn")
    script.clock = child.clock
    script.says("c", ("t2", "TaskOutput", {"task_id": "abc1234"}))
    script.result("t2", "seen", toolUseResult={"retrieval_status": "success", "task": {
        "task_id": "abc1234", "task_type": "local_agent", "status": "completed", "result": "seen"}})  # fmt: skip
    script.user("<task-notification>\n<task-id>abc1234</task-id>\n<status>completed</status>\n<result>seen</result>\n"
                "</task-notification>")  # fmt: skip
    script.user("<task-notification><task-id>b99</task-id><status>completed</status></task-notification>")
    script.says("d", "done")
    place = script.write(tmp_path / "s1.jsonl")
    child.write(tmp_path / "s1/subagents/agent-abc1234.jsonl")
    traces, report = imported(ClaudeCode(), place)
    assert of_type(traces[0], "return") == ["seen"]
    assert counts(traces[0])["tool_call"] == 1
    assert report.skipped["a notice of a command in the background"] == 1


def test_a_team_writes_letters_and_each_is_told_once(tmp_path: Path) -> None:
    lead = Transcript(teamName="crew")
    lead.user("go")
    lead.says(
        "a", ("t1", "Task", {"prompt": "be ann", "name": "ann", "team_name": "crew", "subagent_type": "x"})
    )
    lead.result(
        "t1", "Spawned successfully.", toolUseResult={"status": "teammate_spawned", "agent_id": "ann@crew"}
    )
    ann = Transcript(isSidechain=True, agentId="ann@crew")
    ann.clock = lead.clock
    ann.user("be ann")
    ann.says("b", ("t2", "SendMessage", {"type": "message", "recipient": "team-lead", "content": "ready?"}))
    ann.result("t2", '{"success":true}')
    lead.clock = ann.clock
    lead.user('<teammate-message teammate_id="ann" color="blue" summary="x">\nready?\n</teammate-message>')
    lead.user(
        '<teammate-message teammate_id="bob">\n{"type":"task_assignment","taskId":"1"}\n</teammate-message>'
    )
    lead.says("c", ("t3", "SendMessage", {"to": "ann", "message": "yes"}))
    ann.clock = lead.clock
    ann.user('<teammate-message teammate_id="team-lead">\nyes\n</teammate-message>')
    ann.says("d", "on it", reason="end_turn")
    place = lead.write(tmp_path / "s1.jsonl")
    ann.write(tmp_path / "s1/subagents/agent-ann@crew.jsonl")
    trace = one(place)
    assert arrows(trace, "message") == [("ann", "main"), ("bob", "main"), ("main", "ann")]
    assert [event.decision for event in trace.events if event.type == "message"] == [
        "communicate", "delegate", "communicate",
    ]  # fmt: skip
    assert not arrows(trace, "return")


def test_inboxes_of_a_team(tmp_path: Path) -> None:
    home = tmp_path / "claude"
    script = Transcript()
    script.user("go")
    script.says("a", ("t0", "Task", {"prompt": "be ann", "name": "ann", "team_name": "crew"}))
    script.result("t0", "Spawned", toolUseResult={"status": "teammate_spawned", "agent_id": "ann@crew"})
    team = home / "teams/crew"
    (team / "inboxes").mkdir(parents=True)
    (team / "config.json").write_text(json.dumps({"name": "crew", "leadSessionId": "s1"}))
    script.says("b", ("t1", "SendMessage", {"to": "ann", "message": "go on"}))
    script.write(home / "projects/p/s1.jsonl")
    letters = [{"from": "ann", "text": "found it", "timestamp": "2026-03-01T12:00:09Z", "read": True}]
    ours = [{"from": "team-lead", "text": "go on", "timestamp": "2026-03-01T12:00:04Z"}]
    (team / "inboxes/ann.json").write_text(json.dumps(ours))
    (team / "inboxes/team-lead.json").write_text(json.dumps(letters))
    trace = one(home)
    assert arrows(trace, "message") == [("main", "ann"), ("ann", "main")]


def test_what_is_not_said_by_a_person_is_no_intervention(tmp_path: Path) -> None:
    script = Transcript()
    script.user("the task")
    script.user("<local-command-stdout>x</local-command-stdout>")
    script.user("<system-reminder>be good</system-reminder>")
    script.user("a note", isMeta=True)
    script.says("a", "one")
    script.user("and another thing")
    script.user("[Request interrupted by user]")
    script.add("assistant", isApiErrorMessage=True, message={
        "id": "x", "model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 529"}]})  # fmt: skip
    script.add("assistant", message={
        "id": "y", "model": "<synthetic>", "content": [{"type": "text", "text": "No answer asked for."}]})  # fmt: skip
    traces, report = imported(ClaudeCode(), script.write(tmp_path / "s1.jsonl"))
    trace = traces[0]
    assert trace.header.task_id == "the task"
    assert of_type(trace, "human_intervention") == ["and another thing", "[Request interrupted by user]"]
    assert [call.policy for call in trace.calls] == ["m", None]  # the error was an answer that failed
    assert report.skipped["a note of the program in the user's place"] == 3
    assert report.skipped["words that the program put in the model's place"] == 1


def test_clocks_that_run_backwards_do_not_turn_the_order(tmp_path: Path) -> None:
    script = Transcript()
    script.user("go")
    script.says("a", ("t1", "Bash", {"command": "x"}))
    script.result("t1", "1", timestamp="2026-03-01T11:59:59.000Z")  # before the call it answers
    script.says("b", "done", timestamp="2026-03-01T11:59:58.000Z")
    trace = one(script.write(tmp_path / "s1.jsonl"))
    assert [event.type for event in trace.events] == ["tool_call", "tool_result", "orchestrator_decision"]


def test_entries_of_one_session_in_two_files_are_one_trace(tmp_path: Path) -> None:
    script = Transcript()
    script.user("go")
    script.says("a", "one")
    script.write(tmp_path / "s1.jsonl")
    script.user("more")
    script.says("b", "two")
    script.write(tmp_path / "s2.jsonl")  # resumed into a new file, with the history copied
    traces, _ = imported(ClaudeCode(), tmp_path)
    assert [counts(trace)["calls"] for trace in traces] == [2]


def test_an_agents_transcript_by_itself(tmp_path: Path) -> None:
    child = Transcript(isSidechain=True, agentId="abc1234")
    child.user("look")
    child.says("b", ("t", "Bash", {}), reason="tool_use")
    child.result("t", "x")
    child.says("c", "seen", reason="end_turn")
    trace = one(child.write(tmp_path / "agent-abc1234.jsonl"))
    assert {event.agent for event in trace.events} == {"abc1234"}
    assert not arrows(trace, "spawn")


def test_agents_of_a_workflow_and_agents_that_nobody_started(tmp_path: Path) -> None:
    script = Transcript()
    script.user("sweep")
    script.says("a", ("t1", "Workflow", {"scriptPath": "sweep.js"}), reason="tool_use")
    script.result("t1", "Workflow launched.", toolUseResult={"status": "async_launched", "runId": "wf1"})
    worker = Transcript(session="s1#agent-ag1", isSidechain=True, agentId="ag1")
    worker.clock = script.clock
    worker.user("sweep a")
    worker.says("b", "swept", reason="end_turn")
    warm = Transcript(isSidechain=True, agentId="deadbeef")
    warm.user("Warmup")
    warm.says("c", "ready", reason="end_turn")
    script.clock = worker.clock
    script.says("d", "done", reason="end_turn")
    place = script.write(tmp_path / "s1.jsonl")
    folder = tmp_path / "s1/subagents/workflows/wf1"
    worker.write(folder / "agent-ag1.jsonl")
    (folder / "journal.jsonl").write_text(json.dumps({"type": "result", "agentId": "ag1", "result": "swept"}))
    warm.write(tmp_path / "agent-deadbeef.jsonl")
    traces, report = imported(ClaudeCode(), place)
    (trace,) = traces
    spawns = [(event.to, event.inferred) for event in trace.events if event.type == "spawn"]
    assert spawns == [("ag1", True)]  # no call names it; nobody asked for the one that was warmed up
    assert of_type(trace, "return") == ["swept"]
    assert {call.agent for call in trace.calls} == {"main", "ag1", "deadbeef"}
    assert report.mended["an agent that no call of the session starts has no parent"] == 1


def test_letters_in_a_mailbox_and_from_another_session(tmp_path: Path) -> None:
    script = Transcript()
    script.user("go")
    mailbox = {"type": "teammate_mailbox", "messages": [{"from": "ann", "text": "one", "timestamp": "x"}]}
    script.add("attachment", attachment=mailbox)
    script.user(
        'Another Claude session sent a message:\n<teammate-message teammate_id="bob">two</teammate-message>'
    )
    script.says("a", "thanks")
    trace = one(script.write(tmp_path / "s1.jsonl"))
    assert arrows(trace, "message") == [("ann", "main"), ("bob", "main")]
    assert of_type(trace, "message") == ["one", "two"]
