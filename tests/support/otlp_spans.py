"""Spans written out by hand, as frameworks send them, for tests of the OTLP reader and receiver."""

from __future__ import annotations

import json
from typing import Any

BASE_NS = 1_800_000_000_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(
    span_id: str, parent: str | None, start: float, end: float, name: str = "", **attributes: Any
) -> dict[str, Any]:
    """A span of OTLP's JSON; ids are padded, `__` in an attribute's name is a dot."""
    made: dict[str, Any] = {
        "traceId": TRACE,
        "spanId": padded(span_id),
        "name": name or span_id,
        "startTimeUnixNano": str(BASE_NS + int(start * 1e9)),
        "endTimeUnixNano": str(BASE_NS + int(end * 1e9)),
        "attributes": [
            {"key": key.replace("__", "."), "value": value_of(value)} for key, value in attributes.items()
        ],
    }
    if parent is not None:
        made["parentSpanId"] = padded(parent)
    return made


def padded(span_id: str) -> str:
    return span_id.encode().hex()[:16].rjust(16, "0")


def value_of(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value if isinstance(value, str) else json.dumps(value)}


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    scope = {"name": "hand", "version": "1"}
    return {
        "resourceSpans": [
            {"resource": {"attributes": []}, "scopeSpans": [{"scope": scope, "spans": list(spans)}]}
        ]
    }


def agent(
    span_id: str, parent: str | None, start: float, end: float, name: str, **more: Any
) -> dict[str, Any]:
    return span(
        span_id, parent, start, end, f"invoke_agent {name}", gen_ai__operation__name="invoke_agent",
        gen_ai__agent__name=name, **more,
    )  # fmt: skip


def chat(
    span_id: str, parent: str | None, start: float, end: float, told: str, said: Any, **more: Any
) -> dict[str, Any]:
    """`said` is a text, or (id, name, arguments) of each tool that is asked for."""
    parts = (
        [{"type": "text", "content": said}]
        if isinstance(said, str)
        else [{"type": "tool_call", "id": i, "name": n, "arguments": a} for i, n, a in said]
    )
    return span(
        span_id, parent, start, end, "chat m", gen_ai__operation__name="chat", gen_ai__request__model="m",
        gen_ai__input__messages=[{"role": "user", "parts": [{"type": "text", "content": told}]}],
        gen_ai__output__messages=[{"role": "assistant", "parts": parts}], **more,
    )  # fmt: skip


def tool(
    span_id: str, parent: str | None, start: float, end: float, name: str, call: str, **more: Any
) -> dict[str, Any]:
    return span(
        span_id, parent, start, end, f"execute_tool {name}", gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=name, gen_ai__tool__call__id=call, **more,
    )  # fmt: skip


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]


def team() -> list[dict[str, Any]]:
    """A lead asks two scouts at once; one of them uses a tool. In the order in which spans end."""
    usage = {"gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 2}
    return [
        chat("l1", "lead", 0.1, 0.2, "Where?", [("a", "ask", {"q": "x"}), ("b", "ask", {"q": "y"})], **usage),
        chat("s1", "sc1", 0.4, 0.5, "x", [("c", "look", {"k": 1})], **usage),
        tool("t", "sc1", 0.6, 0.7, "look", "c", gen_ai__tool__call__result="found"),
        chat("s2", "sc1", 0.8, 0.9, "x", "x it is", **usage),
        agent("sc1", "ask1", 0.31, 0.95, "scout", gen_ai__output__messages=said("x it is")),
        tool("ask1", "lead", 0.3, 0.96, "ask", "a", gen_ai__tool__call__arguments='{"q": "x"}'),
        chat("s3", "sc2", 0.4, 0.97, "y", "y it is", **usage),
        agent("sc2", "ask2", 0.32, 0.98, "scout", gen_ai__output__messages=said("y it is")),
        tool("ask2", "lead", 0.3, 0.99, "ask", "b", gen_ai__tool__call__arguments='{"q": "y"}'),
        chat("l2", "lead", 1.0, 1.1, "Where?", "both", **usage),
        agent("lead", None, 0.0, 1.2, "lead", gen_ai__usage__input_tokens=14, gen_ai__usage__output_tokens=4),
    ]
