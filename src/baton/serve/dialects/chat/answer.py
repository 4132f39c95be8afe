"""An answer as Chat Completions tells it, and a server's answer of that dialect."""

from __future__ import annotations

from typing import Any

from baton.serve.backend import Unanswerable
from baton.serve.dialects.chat.conversation import read_assistant, read_content, write_assistant
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields
from baton.serve.dialects.logprobs import token_logprobs, with_tokens
from baton.serve.dialects.names import response_id
from baton.serve.exchange import Ask, Exchange, Finish, Reply, ReplyChoice

# No dialect has a word for an answer that broke off by a fault; this is the one that clients do not take for whole.
_REASONS: dict[Finish, str] = {"error": "content_filter"}
_FINISHES: dict[str, Finish] = {
    "stop": "stop", "length": "length", "tool_calls": "tool_calls", "function_call": "tool_calls",
    "content_filter": "content_filter",
}  # fmt: skip


def write_body(exchange: Exchange) -> dict[str, Any]:
    """The answer as one object."""
    reply = exchange.reply
    assert reply is not None, "only an answered exchange has a body"
    if reply.raw is not None:
        return reply.raw
    return {
        "id": response_id(exchange),
        "object": "chat.completion",
        "created": int(exchange.begun),
        "model": exchange.ask.model,
        "choices": [_choice(place, each, exchange.ask) for place, each in enumerate(reply.choices)],
        "usage": _usage(reply),
        "system_fingerprint": f"{reply.policy}@{reply.policy_version}",
    }


def _choice(place: int, choice: ReplyChoice, ask: Ask) -> dict[str, Any]:
    customs = frozenset(offer.name for offer in ask.tools if (offer.raw or {}).get("type") == "custom")
    message = {"refusal": None, **write_assistant(choice.message, customs)}
    reason = _REASONS.get(choice.finish, choice.finish)
    if "functions" in ask.wording.get("fields", {}) and message.get("tool_calls"):
        called = message.pop("tool_calls")[0]["function"]  # its clients know one call at a time
        message["function_call"] = called
        reason = "function_call" if reason == "tool_calls" else reason
    records = token_logprobs(choice, ask.logprobs)
    logprobs = {"content": records, "refusal": None} if records else None
    return {"index": place, "message": message, "logprobs": logprobs, "finish_reason": reason}


def _usage(reply: Reply) -> dict[str, Any] | None:
    if reply.prompt_tokens is None or reply.completion_tokens is None:
        return None
    usage: dict[str, Any] = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    if reply.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.cached_tokens}
    if reply.thinking_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reply.thinking_tokens}
    return usage


def read_body(body: dict[str, Any], policy: str) -> Reply:
    """What a server answered."""
    try:
        fields = Fields(body)
        usage = fields.inner("usage") or Fields({}, "usage")
        prompt = usage.inner("prompt_tokens_details") or Fields({})
        completion = usage.inner("completion_tokens_details") or Fields({})
        choices = tuple(_read_choice(each) for each in fields.each("choices", needed=True))
        version = fields.get("system_fingerprint")
        reply = Reply(
            choices=choices,
            policy=policy,
            policy_version=version if isinstance(version, str) else "0",
            prompt_tokens=usage.whole("prompt_tokens", 0),
            completion_tokens=usage.whole("completion_tokens", 0),
            cached_tokens=prompt.whole("cached_tokens", 0),
            thinking_tokens=completion.whole("reasoning_tokens", 0),
            raw=body,
        )
    except BadAsk as bad:
        raise Unanswerable(f"The server's answer cannot be read: {bad}", status=502) from None
    if not reply.choices:
        raise Unanswerable("The server's answer holds no choice.", status=502)
    return reply


def _read_choice(fields: Fields) -> ReplyChoice:
    message = fields.inner("message") or Fields({}, fields.at("message"))
    text, others = read_content(message, "content", "")
    reason = fields.get("finish_reason")
    tokens = [] if (told := fields.inner("logprobs")) is None else list(told.each("content"))
    choice = ReplyChoice(
        message=read_assistant(message, text, others, None),
        finish=_FINISHES.get(reason if isinstance(reason, str) else "", "stop"),
    )
    return with_tokens(choice, tokens)
