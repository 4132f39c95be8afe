"""Plain message lists, in every layout that files of them have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.messages import MessagesSource
from baton.trace.trace import Trace
from baton.trace.validation import validate

TALK: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather in Oslo and Łódź?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
            {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Łódź"}'}},
            {"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
        ],
        "usage": {"prompt_tokens": 41, "completion_tokens": 17},
    },
    {"role": "tool", "tool_call_id": "c", "content": "12:00"},
    {"role": "tool", "tool_call_id": "a", "content": "rain"},
    {"role": "tool", "tool_call_id": "b", "content": "sun"},
    {"role": "assistant", "content": "Rain, and sun."},
    {"role": "user", "content": "And tomorrow?"},
    {"role": "assistant", "content": "I cannot know."},
]


def read(place: Path) -> tuple[list[Trace], ImportReport]:
    report = ImportReport()
    assert MessagesSource().recognises(place)
    traces = assemble(MessagesSource().read(place, report), report, kind="messages")
    assert [problem for trace in traces for problem in validate(trace)] == []
    return traces, report


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def acts(trace: Trace) -> list[tuple[str, str | None, str | None]]:
    return [(event.type, event.tool, trace.text(event.content_ref)) for event in trace.events]


def expected() -> list[tuple[str, str | None, str]]:
    return [
        ("tool_call", "weather", '{"city": "Oslo"}'),
        ("tool_call", "weather", '{"city": "Łódź"}'),
        ("tool_call", "clock", "{}"),
        ("tool_result", "clock", "12:00"),
        ("tool_result", "weather", "rain"),
        ("tool_result", "weather", "sun"),
        ("orchestrator_decision", None, "Rain, and sun."),
        ("human_intervention", None, "And tomorrow?"),
        ("orchestrator_decision", None, "I cannot know."),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", json.dumps(TALK)),
        ("pretty.json", json.dumps(TALK, indent=2)),
        ("object.json", json.dumps({"messages": TALK, "split": "test"})),
        ("lines.jsonl", "\n".join(map(json.dumps, TALK))),
        ("rows.jsonl", json.dumps({"id": 7, "messages": TALK}) + "\n"),
        ("rows_of_lists.jsonl", json.dumps(TALK) + "\n"),
        ("many.json", json.dumps([{"conversation_id": "x", "messages": TALK}])),
        ("mark.json", "\ufeff" + json.dumps(TALK)),
    ],
)
def test_every_layout_gives_one_trace(tmp_path: Path, name: str, text: str) -> None:
    (trace,), report = read(write(tmp_path / name, text))
    assert acts(trace) == expected()
    assert report.entries == len(TALK)
    assert not report.skipped
    assert trace.header.meta["connect"]["task"] == "Weather in Oslo and Łódź?"
    # Each result hangs on the call it names, not on the one that stands beside it.
    answers = {
        edge.dst: edge.src for edge in trace.edges if edge.type == "tool_dependency" and edge.dst in "e4e5e6"
    }
    assert answers == {"e4": "e3", "e5": "e1", "e6": "e2"}
    first, *others = trace.calls
    assert (first.prompt_tokens, first.completion_tokens) == (41, 17)
    assert all(call.prompt_tokens is None and call.completion_tokens is None for call in others)
    # The end is concluded, and nothing else is.
    assert [event.id for event in trace.events if event.inferred] == ["e9"]
    assert trace.events[-1].decision == "stop"


def test_anthropics_blocks(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Read both."},
        {
            "role": "assistant",
            "model": "claude-x",
            "content": [
                {"type": "thinking", "thinking": "two files"},
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "t2", "name": "read", "input": {"path": "b"}},
            ],
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 12},
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "B"}]},
                {"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Only b."}], "stop_reason": "end_turn"},
    ]
    (trace,), _ = read(write(tmp_path / "blocks.json", json.dumps(talk)))
    assert acts(trace) == [
        ("tool_call", "read", '{"path":"a"}'),
        ("tool_call", "read", '{"path":"b"}'),
        ("tool_result", "read", "B"),
        ("tool_result", "read", "no such file"),
        ("orchestrator_decision", None, "Only b."),
    ]
    assert [event.status for event in trace.events] == ["ok", "ok", "ok", "failed", "ok"]
    call = trace.calls[0]
    assert (call.policy, call.prompt_tokens, call.completion_tokens) == ("claude-x", 95, 12)
    assert trace.text(call.completion_ref) == "Reading."
    assert trace.calls[1].finish_reason == "end_turn"


def test_items_of_responses(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": "add"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "x", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "y", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "y", "output": "0"},
        {"type": "function_call_output", "call_id": "x", "output": "1"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1"}]},
    ]
    (trace,), report = read(
        write(tmp_path / "items.json", json.dumps({"task_id": 3, "traj": items, "reward": 1.0}))
    )
    assert acts(trace) == [
        ("tool_call", "add", '{"a": 1}'),
        ("tool_call", "add", "{}"),
        ("tool_result", "add", "0"),
        ("tool_result", "add", "1"),
        ("orchestrator_decision", None, "1"),
    ]
    assert report.skipped == {"an entry that is no message": 1}
    assert [reward.value for reward in trace.rewards] == [1.0]
    assert trace.header.meta["row"] == {"task_id": 3, "reward": 1.0}


def test_sharegpt(tmp_path: Path) -> None:
    row = {
        "conversations": [
            {"from": "system", "value": "tools: add"},
            {"from": "human", "value": "2 and 3?"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2, "b": 3}}'},
            {"from": "observation", "value": "5"},
            {"from": "gpt", "value": "5."},
        ]
    }
    (trace,), _ = read(write(tmp_path / "share.jsonl", json.dumps(row)))
    assert acts(trace) == [
        ("tool_call", "add", '{"a":2,"b":3}'),
        ("tool_result", "add", "5"),
        ("orchestrator_decision", None, "5."),
    ]
    result = next(edge for edge in trace.edges if edge.type == "tool_dependency")
    assert result.inferred  # the answer names no call
    assert "order" in (result.why or "")


def test_a_group_chat_has_its_speakers(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Solve it."},
        {"role": "assistant", "name": "Planner", "content": "Split."},
        {"role": "user", "name": "Coder #2", "content": "Done."},
        {"role": "assistant", "name": "Planner", "content": "Thanks."},
    ]
    (trace,), _ = read(write(tmp_path / "group.json", json.dumps(talk)))
    assert [(event.agent, event.type) for event in trace.events] == [
        ("Planner", "message"), ("Coder #2", "message"), ("Planner", "message"),
    ]  # fmt: skip
    assert trace.calls == ()  # whether a model said it is not in the file
    assert [edge.inferred for edge in trace.edges if edge.type == "message"] == [True, True]


def test_agents_that_take_over(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Refund me."},
        {
            "role": "assistant", "sender": "Triage", "content": "",
            "tool_calls": [{"id": "h", "function": {"name": "transfer_to_sales", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "h", "content": "Sales"},
        {"role": "assistant", "sender": "Sales", "content": "Refunded."},
    ]  # fmt: skip
    (trace,), _ = read(write(tmp_path / "swarm.json", json.dumps(talk)))
    assert [(event.agent, event.type) for event in trace.events] == [
        ("Triage", "tool_call"), ("Triage", "tool_result"), ("Sales", "orchestrator_decision"),
    ]  # fmt: skip
    assert [(call.agent, call.parent) for call in trace.calls] == [("Triage", None), ("Sales", "c1")]


def test_rows_in_any_order_and_twice(tmp_path: Path) -> None:
    talks = [
        [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "x" * n}]
        for n in range(5)
    ]
    lines = [json.dumps({"messages": talk}) for talk in talks]
    there, _ = read(write(tmp_path / "rows.jsonl", "\n".join(lines)))
    again, report = read(write(tmp_path / "rows.jsonl", "\n".join([*reversed(lines), lines[2], lines[0]])))
    assert again == there
    assert len(there) == 5
    assert report.joined["a conversation that stands twice in its file"] == 2


def test_bad_lines_are_told(tmp_path: Path) -> None:
    good = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    text = "\n".join(
        [good, "{not json", '{"no": "messages"}', '{"messages": [{"role": "user", "content": "cu']
    )
    traces, report = read(write(tmp_path / "bad.jsonl", text))
    assert len(traces) == 1
    assert report.skipped == {"a line that is not JSON": 2, "an entry that is no conversation": 1}
    assert report.places["a line that is not JSON"][0].endswith("bad.jsonl:2")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_file_that_was_cut_gives_what_is_there(tmp_path: Path, cut: int) -> None:
    whole = json.dumps(TALK)
    path = write(tmp_path / "cut.json", whole[: len(whole) * cut // 12])
    report = ImportReport()
    for trace in assemble(MessagesSource().read(path, report), report):
        assert validate(trace) == []
        assert acts(trace) == expected()[: len(trace.events)]
    assert report.skipped["the end of a document that is cut off or damaged"] == 1
