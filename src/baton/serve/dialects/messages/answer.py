"""An answer as Messages tells it, and a server's answer of that dialect."""

from __future__ import annotations

from typing import Any

from baton.serve.backend import Unanswerable
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields
from baton.serve.dialects.messages.conversation import read_assistant, write_assistant
from baton.serve.dialects.names import response_id
from baton.serve.exchange import Ask, Exchange, Finish, Reply, ReplyChoice

_REASONS: dict[Finish, str] = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal",
    "error": "refusal",
}  # fmt: skip
_FINISHES: dict[str, Finish] = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "max_tokens": "length",
    "model_context_window_exceeded": "length", "tool_use": "tool_calls", "refusal": "content_filter",
}  # fmt: skip


def write_body(exchange: Exchange) -> dict[str, Any]:
    """The answer as one object."""
    reply = exchange.reply
    assert reply is not None, "only an answered exchange has a body"
    if reply.raw is not None:
        return reply.raw
    choice = reply.choices[0]
    stopped = choice.finish == "stop" and choice.stop is not None
    return {
        "id": response_id(exchange),
        "type": "message",
        "role": "assistant",
        "model": exchange.ask.model,
        "content": write_assistant(choice.message, thoughts=_thoughts_wanted(exchange.ask)),
        "stop_reason": "stop_sequence" if stopped else _REASONS[choice.finish],
        "stop_sequence": choice.stop if stopped else None,
        "usage": _usage(reply),
    }


def _thoughts_wanted(ask: Ask) -> bool:
    """A program that did not ask for thoughts does not expect a block of them before the text."""
    told = ask.extra.get("thinking")
    return isinstance(told, dict) and told.get("type") in ("enabled", "adaptive")


def _usage(reply: Reply) -> dict[str, Any]:
    """This dialect has to name numbers, and counts what came from a cache apart."""
    cached = reply.cached_tokens or 0
    usage: dict[str, Any] = {
        "input_tokens": max((reply.prompt_tokens or 0) - cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": reply.completion_tokens or 0,
    }
    if reply.thinking_tokens is not None:
        usage["output_tokens_details"] = {"thinking_tokens": reply.thinking_tokens}
    return usage


def read_body(body: dict[str, Any], policy: str) -> Reply:
    """What a server answered."""
    try:
        fields = Fields(body)
        if fields.get("type") == "error":
            why = (fields.inner("error") or fields).get("message")
            raise Unanswerable(f"The server answered with an error: {why}", status=502)
        if not isinstance(fields.get("content"), list):
            raise Unanswerable("The server's answer holds no content.", status=502)
        usage = fields.inner("usage") or Fields({}, "usage")
        reason = fields.get("stop_reason")
        choice = ReplyChoice(
            message=read_assistant(fields),
            finish=_FINISHES.get(reason if isinstance(reason, str) else "", "stop"),
            stop=fields.maybe_text("stop_sequence"),
        )
        parts = [
            usage.whole(name, 0)
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ]
        details = usage.inner("output_tokens_details") or Fields({})
        return Reply(
            choices=(choice,),
            policy=policy,
            prompt_tokens=None if parts[0] is None else sum(part or 0 for part in parts),
            completion_tokens=usage.whole("output_tokens", 0),
            cached_tokens=parts[2],
            thinking_tokens=details.whole("thinking_tokens", 0),
            raw=body,
        )
    except BadAsk as bad:
        raise Unanswerable(f"The server's answer cannot be read: {bad}", status=502) from None
