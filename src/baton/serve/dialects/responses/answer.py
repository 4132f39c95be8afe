"""An answer as Responses tells it, and a server's answer of that dialect."""

from __future__ import annotations

from typing import Any

from baton.serve.backend import Unanswerable
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields
from baton.serve.dialects.logprobs import token_logprobs, with_tokens
from baton.serve.dialects.names import response_id
from baton.serve.dialects.responses.conversation import read_made, write_made
from baton.serve.dialects.responses.offers import tool_kinds
from baton.serve.dialects.responses.request import write_request
from baton.serve.exchange import Ask, Exchange, Finish, Reply, ReplyChoice

_IDS = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "local_shell_call": "lsh",
}  # fmt: skip
_ENCRYPTED = "reasoning.encrypted_content"
_ECHOED = (
    "instructions", "max_output_tokens", "metadata", "max_tool_calls", "previous_response_id", "prompt_cache_key",
    "reasoning", "safety_identifier", "service_tier", "store", "text", "top_logprobs", "truncation", "user",
)  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    "metadata": {}, "reasoning": {"effort": None, "summary": None}, "store": True, "truncation": "disabled",
    "text": {"format": {"type": "text"}},
}  # fmt: skip
_WHY: dict[Finish, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}


def write_body(exchange: Exchange) -> dict[str, Any]:
    """The answer as one object, with what was asked as far as this dialect says it again."""
    reply = exchange.reply
    assert reply is not None, "only an answered exchange has a body"
    if reply.raw is not None:
        return reply.raw
    choice = reply.choices[0]
    why = _WHY.get(choice.finish)
    failed = choice.finish == "error"
    asked = write_request(exchange.ask)
    return {
        "id": response_id(exchange),
        "object": "response",
        "created_at": int(exchange.begun),
        "status": "failed" if failed else "completed" if why is None else "incomplete",
        "background": False,
        "error": {"code": "server_error", "message": "The answer broke off."} if failed else None,
        "incomplete_details": None if why is None else {"reason": why},
        "model": exchange.ask.model,
        "output": _output(exchange, choice),
        "parallel_tool_calls": exchange.ask.parallel,
        "temperature": exchange.ask.sampling.temperature,
        "top_p": exchange.ask.sampling.top_p,
        "tool_choice": asked.get("tool_choice", "auto"),
        "tools": asked.get("tools", []),
        **{name: asked.get(name, _DEFAULTS.get(name)) for name in _ECHOED},
        "usage": _usage(reply),
    }


def _output(exchange: Exchange, choice: ReplyChoice) -> list[dict[str, Any]]:
    """The items of an answer; their ids are the exchange's with their place."""
    ask = exchange.ask
    include = ask.extra.get("include")
    encrypted = isinstance(include, list) and _ENCRYPTED in include
    whole = "completed" if choice.finish in ("stop", "tool_calls") else "incomplete"
    records = token_logprobs(choice, ask.logprobs)
    items = []
    for place, item in enumerate(write_made(choice.message, tool_kinds(ask.tools))):
        told = {"id": f"{_IDS.get(item['type'], 'item')}_{exchange.id}_{place}", **item}
        if item["type"] == "reasoning":
            if not encrypted:
                told.pop("encrypted_content", None)
        elif item["type"] in _IDS:
            told["status"] = whole
        if item["type"] == "message":
            told["content"] = [_part(part, records) for part in item["content"]] or [_part(_EMPTY, records)]
        items.append(told)
    return items


_EMPTY: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}


def _part(part: dict[str, Any], records: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {**part, "logprobs": records or []} if part["type"] == "output_text" else part


def _usage(reply: Reply) -> dict[str, Any] | None:
    if reply.prompt_tokens is None or reply.completion_tokens is None:
        return None
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.thinking_tokens or 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }


def read_body(body: dict[str, Any], policy: str) -> Reply:
    """What a server answered."""
    try:
        fields = Fields(body)
        if (error := fields.inner("error")) is not None:
            raise Unanswerable(f"The server answered with an error: {error.get('message')}", status=502)
        items = list(fields.each("output", needed=True))
        usage = fields.inner("usage") or Fields({}, "usage")
        prompt = usage.inner("input_tokens_details") or Fields({})
        completion = usage.inner("output_tokens_details") or Fields({})
        return Reply(
            choices=(_choice(fields, items),),
            policy=policy,
            prompt_tokens=usage.whole("input_tokens", 0),
            completion_tokens=usage.whole("output_tokens", 0),
            cached_tokens=prompt.whole("cached_tokens", 0),
            thinking_tokens=completion.whole("reasoning_tokens", 0),
            raw=body,
        )
    except BadAsk as bad:
        raise Unanswerable(f"The server's answer cannot be read: {bad}", status=502) from None


def _choice(fields: Fields, items: list[Fields]) -> ReplyChoice:
    message = read_made(items)
    why = (fields.inner("incomplete_details") or Fields({})).get("reason")
    finish: Finish = "tool_calls" if message.uses else "stop"
    if why is not None:
        finish = "content_filter" if why == "content_filter" else "length"
    parts = [part for item in items if item.get("type") == "message" for part in item.each("content")]
    tokens = [token for part in parts for token in part.each("logprobs")]
    choice = ReplyChoice(
        message=message,
        finish=finish,
    )
    return with_tokens(choice, tokens)


def kept(ask: Ask) -> bool:
    """Whether a later request may go on from this answer by its id: unless it was asked not to be stored."""
    return ask.extra.get("store") is not False
