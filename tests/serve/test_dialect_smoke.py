"""Every dialect reads a question, tells an answer, and streams the same answer."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_requests import answered, encoded, request, says

from baton.serve.dialects import CODECS, codec_of
from baton.serve.dialects.fields import without_nulls
from baton.serve.exchange import Dialect, ReplyChoice

DIALECTS: list[Dialect] = ["chat", "responses", "messages"]
TOOLS: dict[Dialect, dict[str, Any]] = {
    "chat": {"type": "function", "function": {"name": "odd_sum", "parameters": {"type": "object"}}},
    "responses": {"type": "function", "name": "odd_sum", "parameters": {"type": "object"}, "strict": True},
    "messages": {
        "name": "odd_sum",
        "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"},
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_streamed_answer_is_the_answer(dialect: Dialect) -> None:
    message = says("Ünder way, " * 20, ("odd_sum", '{"of": [1, 3]}'), ("odd_sum", "{}"), thinking="Hm. " * 40)
    options: dict[str, Any] = {
        "chat": {"stream_options": {"include_usage": True}},
        "messages": {"thinking": {"type": "adaptive"}},
    }.get(dialect, {})
    asked = request(dialect, tools=[TOOLS[dialect]], stream=True, **options)
    exchange = answered(dialect, ReplyChoice(message=message, finish="tool_calls"), asked=asked)
    codec = codec_of(dialect)
    told = codec.body(exchange)
    again = codec.gather(codec.stream(exchange))
    assert without_nulls(again) == without_nulls(told)
    reply = codec.reply(again, policy="scripted")
    assert reply.choices[0].message == message
    assert reply.choices[0].finish == "tool_calls"
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.thinking_tokens) == (
        31,
        17,
        8,
        5,
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_can_be_sent_again(dialect: Dialect) -> None:
    asked = request(
        dialect, tools=[TOOLS[dialect]], temperature=0.25, metadata={"user_id": "u"}, odd_field=[1]
    )
    codec = CODECS[dialect]
    ask = codec.read(encoded(asked))
    assert ask.tools[0].name == "odd_sum"
    assert ask.extra == {"metadata": {"user_id": "u"}, "odd_field": [1]}
    assert codec.request_body(ask) == asked
