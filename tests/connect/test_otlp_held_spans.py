"""A run that holds its spans, as any-agent writes it: ids are whole numbers, parents objects, the list within."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from baton.connect.importing import import_traces

TRACE = 39712373237291850001929057769826244787  # more than 64 bits
ROOT = 0xFEDCBA9876543210


def held(number: int, parent: int | None, name: str, status: str = "ok", **attributes: Any) -> dict[str, Any]:
    above = {"trace_id": TRACE, "span_id": parent, "is_remote": False}
    start = 1758026594777382000 + number * 1_000_000_000
    return {
        "name": name,
        "kind": "internal",
        "parent": above if parent else None,
        "context": {"trace_id": TRACE, "span_id": number if parent else ROOT},
        "start_time": start,
        "end_time": start + 500_000_000 if parent else start + 9_000_000_000,
        "status": {"status_code": status, "description": None},
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
    }


def test_spans_that_a_run_holds(tmp_path: Path) -> None:
    usage = {"gen_ai__usage__input_tokens": 395, "gen_ai__usage__output_tokens": 16}
    spans = [
        held(2, ROOT, "call_llm m", gen_ai__operation__name="call_llm", gen_ai__request__model="m", **usage),
        held(3, ROOT, "execute_tool clock", "error", gen_ai__operation__name="execute_tool",
             gen_ai__tool__name="clock"),
        held(4, ROOT, "call_llm m", gen_ai__operation__name="call_llm", gen_ai__request__model="m", **usage),
        held(1, None, "invoke_agent [odd]", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="odd"),
    ]  # fmt: skip
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"spans": spans, "final_output": "noon"}, indent=1))
    done = import_traces(path)
    (trace,) = done.traces
    assert trace.trace_id == f"otlp-{TRACE:032x}"
    assert {event.agent for event in trace.events} == {"odd"}
    assert [(call.prompt_tokens, call.completion_tokens) for call in trace.calls] == [(395, 16)] * 2
    assert [(event.type, event.tool, event.status) for event in trace.events if event.tool] == [
        ("tool_call", "clock", "ok"), ("tool_result", "clock", "failed"),
    ]  # fmt: skip
    assert not done.report.skipped
