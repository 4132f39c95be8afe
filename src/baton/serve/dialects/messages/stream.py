"""An answer of Messages as a stream of events, and a server's events as the answer they amount to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from baton.serve.backend import Unanswerable
from baton.serve.dialects.arguments import as_object, as_text
from baton.serve.dialects.sse import event, events, pieces

_AT_THE_END = ("stop_reason", "stop_sequence", "stop_details", "container")
_TOOLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def write_stream(body: dict[str, Any]) -> Iterator[bytes]:
    """message_start, the blocks, message_delta, message_stop."""
    usage = body.get("usage") or {}
    started = {k: v for k, v in body.items() if k not in (*_AT_THE_END, "context_management")}
    started |= {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0},
    }
    yield _event("message_start", message=started)
    for index, block in enumerate(body.get("content") or []):
        opened, deltas = _block(block)
        yield _event("content_block_start", index=index, content_block=opened)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ended = {name: body[name] for name in _AT_THE_END if name in body}
    more = {"context_management": body["context_management"]} if "context_management" in body else {}
    yield _event("message_delta", delta=ended, usage=usage, **more)
    yield _event("message_stop")


def _event(name: str, **data: Any) -> bytes:
    return event({"type": name, **data}, name)


def _block(block: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """A block as it is opened, and what is added to it."""
    kind = block.get("type")
    if kind == "text":
        cited = [{"type": "citations_delta", "citation": each} for each in block.get("citations") or []]
        said = ({"type": "text_delta", "text": piece} for piece in pieces(block.get("text") or ""))
        opened = {**block, "text": ""} | ({"citations": []} if cited else {})
        return opened, iter([*said, *cited])
    if kind == "thinking":
        opened = {**block, "thinking": "", "signature": ""}
        return opened, _thought(block)
    if kind in _TOOLS:
        said = (
            {"type": "input_json_delta", "partial_json": piece}
            for piece in pieces(as_text(block.get("input") or {}) if _plain(block) else "")
        )
        return {**block, "input": {}} if _plain(block) else block, said
    return block, iter(())


def _plain(block: dict[str, Any]) -> bool:
    return isinstance(block.get("input"), dict)


def _thought(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for piece in pieces(block.get("thinking") or ""):
        yield {"type": "thinking_delta", "thinking": piece}
    yield {"type": "signature_delta", "signature": block.get("signature") or ""}


def read_stream(chunks: Iterable[bytes]) -> dict[str, Any]:
    """The answer that a stream amounts to."""
    body: dict[str, Any] | None = None
    blocks: dict[int, dict[str, Any]] = {}
    said: dict[int, str] = {}
    for _, data in events(chunks):
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "error":
            why = (data.get("error") or {}).get("message")
            raise Unanswerable(f"The server's stream ended with an error: {why}", status=502, passing=True)
        if kind == "message_start":
            body = dict(data.get("message") or {})
        elif body is None:
            continue
        elif kind == "content_block_start":
            blocks[data["index"]] = dict(data["content_block"])
        elif kind == "content_block_delta":
            _add(blocks.setdefault(data["index"], {}), data["delta"], said, data["index"])
        elif kind == "message_delta":
            body |= data.get("delta") or {}
            body["usage"] = {**(body.get("usage") or {}), **(data.get("usage") or {})}
            body |= {k: v for k, v in data.items() if k not in ("type", "delta", "usage")}
    if body is None:
        raise Unanswerable("The server's stream ended before it said anything.", status=502, passing=True)
    for index, text in said.items():
        blocks[index]["input"] = as_object(text)
    return {**body, "content": [blocks[index] for index in sorted(blocks)]}


def _add(block: dict[str, Any], delta: dict[str, Any], said: dict[int, str], index: int) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "input_json_delta":
            said[index] = said.get(index, "") + delta["partial_json"]
