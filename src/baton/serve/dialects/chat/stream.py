"""An answer of Chat Completions as a stream of chunks, and a server's chunks as the answer they amount to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from baton.serve.backend import Unanswerable
from baton.serve.dialects.sse import event, events, pieces

_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")
"""Fields of a message that arrive piece by piece, in this order."""
_HEAD = ("id", "created", "model", "system_fingerprint", "service_tier")


def write_stream(body: dict[str, Any], include_usage: bool) -> Iterator[bytes]:
    """The chunks of an answer, choice after choice, and `[DONE]`."""
    head = {name: body[name] for name in _HEAD if name in body} | {"object": "chat.completion.chunk"}
    usage: dict[str, Any] = {"usage": None} if include_usage else {}
    for choice in body.get("choices") or []:
        for part in _chunks(choice):
            yield event({**head, "choices": [part], **usage})
    known = {*_HEAD, "object", "choices", "usage"}
    rest = {name: value for name, value in body.items() if name not in known}
    if include_usage:
        yield event({**head, **rest, "choices": [], "usage": body.get("usage")})
    elif rest:
        yield event({**head, **rest, "choices": []})
    yield b"data: [DONE]\n\n"


def _chunks(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of one choice: who speaks, what it says, what it asks for, why it ended."""
    index = choice.get("index", 0)
    message = choice.get("message") or {}
    records = (choice.get("logprobs") or {}).get("content") or []

    def part(delta: dict[str, Any], tokens: list[Any] | None = None) -> dict[str, Any]:
        told = {"content": tokens, "refusal": None} if tokens else None
        return {"index": index, "delta": delta, "logprobs": told, "finish_reason": None}

    pieced = {*_TEXTS, "tool_calls", "function_call"}
    first = {name: value for name, value in message.items() if name not in pieced}
    first |= {"content": None if message.get("content") is None else "", "refusal": None}
    aligned = bool(records) and "".join(each["token"] for each in records) == message.get("content")
    yield part(first, [] if aligned else records)
    for name in _TEXTS:
        text = message.get(name)
        if not isinstance(text, str):
            continue
        if name == "content" and aligned:
            yield from (part({name: each["token"]}, [each]) for each in records)
        else:
            yield from (part({name: piece}) for piece in pieces(text))
    for place, call in enumerate(message.get("tool_calls") or []):
        yield from map(part, _call(place, call))
    if (old := message.get("function_call")) is not None:
        yield part({"function_call": {"name": old.get("name"), "arguments": ""}})
        for piece in pieces(old.get("arguments") or ""):
            yield part({"function_call": {"arguments": piece}})
    rest = {k: v for k, v in choice.items() if k not in ("index", "message", "logprobs", "finish_reason")}
    yield {**part({}), **rest, "finish_reason": choice.get("finish_reason")}


def _call(place: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A tool call begins with its id and name; its arguments follow."""
    kind = call.get("type", "function")
    name = "input" if kind == "custom" else "arguments"
    inner = call.get(kind) or {}
    yield {"tool_calls": [{"index": place, **call, kind: {**inner, name: ""}}]}
    for piece in pieces(inner.get(name) or ""):
        yield {"tool_calls": [{"index": place, kind: {name: piece}}]}


def read_stream(chunks: Iterable[bytes]) -> dict[str, Any]:
    """The answer that a stream amounts to."""
    body: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for _, chunk in events(chunks):
        if not isinstance(chunk, dict):
            continue
        if chunk.get("error"):
            raise Unanswerable(
                f"The server's stream ended with an error: {chunk['error']}", status=502, passing=True
            )
        body |= {k: v for k, v in chunk.items() if k not in ("choices", "object") and v is not None}
        for part in chunk.get("choices") or []:
            _add_part(choices.setdefault(part.get("index", 0), {}), part)
    if not choices:
        raise Unanswerable("The server's stream ended before it said anything.", status=502, passing=True)
    told = [choices[index] for index in sorted(choices)]
    for choice in told:
        if calls := choice["message"].get("tool_calls"):
            choice["message"]["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {"object": "chat.completion", **body, "choices": told}


def _add_part(choice: dict[str, Any], part: dict[str, Any]) -> None:
    message = choice.setdefault("message", {})
    for name, value in part.items():
        if name == "delta":
            _add_delta(message, value or {})
        elif name == "logprobs":
            if value:
                told = choice.setdefault("logprobs", {"content": [], "refusal": None})
                told["content"] += value.get("content") or []
        elif value is not None:
            choice[name] = value


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if value is None:
            continue
        if name == "tool_calls":
            calls = message.setdefault("tool_calls", {})
            for part in value:
                call = calls.setdefault(part.get("index", len(calls)), {})
                _add_call(call, {k: v for k, v in part.items() if k != "index"})
        elif name == "function_call":
            _add_call(message.setdefault("function_call", {}), value)
        elif name in _TEXTS:
            message[name] = message.get(name, "") + value
        else:
            message[name] = value


def _add_call(call: dict[str, Any], part: dict[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, dict):
            _add_call(call.setdefault(name, {}), value)
        elif name in ("arguments", "input") and isinstance(value, str):
            call[name] = call.get(name, "") + value
        elif value is not None:
            call[name] = value
