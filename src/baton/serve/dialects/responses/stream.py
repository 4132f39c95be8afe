"""An answer of Responses as a stream of numbered events, and a server's events as the answer they amount to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from baton.serve.backend import Unanswerable
from baton.serve.dialects.sse import event, events, pieces

Event = tuple[str, dict[str, Any]]
_ENDS = ("completed", "incomplete", "failed")


def write_stream(body: dict[str, Any]) -> Iterator[bytes]:
    """created, in_progress, the items, and how it ended."""
    for number, (name, data) in enumerate(_events(body)):
        kind = f"response.{name}"
        yield event({"type": kind, "sequence_number": number, **data}, kind)


def _events(body: dict[str, Any]) -> Iterator[Event]:
    begun = {
        **body,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }
    yield "created", {"response": begun}
    yield "in_progress", {"response": begun}
    for index, item in enumerate(body.get("output") or []):
        yield from _item(index, item)
    status = body.get("status")
    yield status if status in _ENDS else "completed", {"response": body}


def _item(index: int, item: dict[str, Any]) -> Iterator[Event]:
    """An item is added empty, filled, and done."""
    where = {"item_id": item.get("id"), "output_index": index}
    empty = {**item, "status": "in_progress"} if "status" in item else dict(item)
    filled: Iterator[Event] = iter(())
    match item.get("type"):
        case "message":
            empty["content"] = []
            filled = _contents(item, where)
        case "reasoning":
            empty["summary"] = []
            if item.get("content"):
                empty["content"] = []
            filled = _thoughts(item, where)
        case "function_call":
            empty["arguments"] = ""
            filled = _text("function_call_arguments", "arguments", item.get("arguments"), where)
        case "custom_tool_call":
            empty["input"] = ""
            filled = _text("custom_tool_call_input", "input", item.get("input"), where)
    yield "output_item.added", {"output_index": index, "item": empty}
    yield from filled
    yield "output_item.done", {"output_index": index, "item": item}


def _text(kind: str, name: str, text: Any, where: dict[str, Any]) -> Iterator[Event]:
    """A text piece by piece, then whole."""
    for piece in pieces(text or ""):
        yield f"{kind}.delta", {**where, "delta": piece}
    yield f"{kind}.done", {**where, name: text or ""}


def _contents(item: dict[str, Any], where: dict[str, Any]) -> Iterator[Event]:
    for place, part in enumerate(item.get("content") or []):
        here = {**where, "content_index": place}
        kind = part.get("type")
        name = "refusal" if kind == "refusal" else "text"
        empty = {**part, name: ""} | ({"logprobs": [], "annotations": []} if kind == "output_text" else {})
        yield "content_part.added", {**here, "part": empty}
        if kind == "output_text":
            yield from _output_text(part, here)
        elif kind in ("refusal", "reasoning_text"):
            yield from _text(kind, name, part.get(name), here)
        yield "content_part.done", {**here, "part": part}


def _output_text(part: dict[str, Any], here: dict[str, Any]) -> Iterator[Event]:
    """The text, token by token where the tokens are known."""
    text, records = part.get("text") or "", part.get("logprobs") or []
    aligned = bool(records) and "".join(record["token"] for record in records) == text
    told = [(record["token"], [record]) for record in records] if aligned else [(p, []) for p in pieces(text)]
    for piece, tokens in told:
        yield "output_text.delta", {**here, "delta": piece, "logprobs": tokens}
    for place, each in enumerate(part.get("annotations") or []):
        yield "output_text.annotation.added", {**here, "annotation_index": place, "annotation": each}
    yield "output_text.done", {**here, "text": text, "logprobs": records}


def _thoughts(item: dict[str, Any], where: dict[str, Any]) -> Iterator[Event]:
    for place, part in enumerate(item.get("summary") or []):
        here = {**where, "summary_index": place}
        yield "reasoning_summary_part.added", {**here, "part": {**part, "text": ""}}
        yield from _text("reasoning_summary_text", "text", part.get("text"), here)
        yield "reasoning_summary_part.done", {**here, "part": part}
    yield from _contents(item, where)


def read_stream(chunks: Iterable[bytes]) -> dict[str, Any]:
    """The answer that a stream amounts to."""
    items: dict[int, dict[str, Any]] = {}
    for _, data in events(chunks):
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "error":
            why = data.get("message") or (data.get("error") or {}).get("message")
            raise Unanswerable(f"The server's stream ended with an error: {why}", status=502, passing=True)
        if kind == "response.output_item.done":
            items[data.get("output_index", len(items))] = data.get("item") or {}
        elif isinstance(kind, str) and kind.removeprefix("response.") in _ENDS:
            body: dict[str, Any] = dict(data.get("response") or {})
            if not body.get("output"):
                body["output"] = [items[index] for index in sorted(items)]
            body.setdefault("status", kind.removeprefix("response."))
            return body
    raise Unanswerable("The server's stream ended before the answer was whole.", status=502, passing=True)
