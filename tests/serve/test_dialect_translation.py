# ruff: noqa: E501
"""A program speaks one dialect and the server behind it another: what was asked and answered is the same."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_bodies import bodies
from dialect_requests import answered, encoded, request, says
from golden_dialects import DIALECTS
from hypothesis import given
from hypothesis import strategies as st

from baton.serve.backend import Unanswerable
from baton.serve.dialects import codec_of
from baton.serve.exchange import Dialect, ReplyChoice

PAIRS = [(one, other) for one in DIALECTS for other in DIALECTS if one != other]
PICTURE = "data:image/png;base64,aGVq"
PARTS: dict[Dialect, list[dict[str, Any]]] = {
    "chat": [{"type": "text", "text": "See."}, {"type": "image_url", "image_url": {"url": PICTURE}}],
    "responses": [{"type": "input_text", "text": "See."}, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}],
    "messages": [
        {"type": "text", "text": "See."},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVq"}},
    ],
}  # fmt: skip


def talk(dialect: Dialect) -> dict[str, Any]:
    """System, question, thought, two tools, one of which failed, and what comes next."""
    schema = {"type": "object", "properties": {"of": {"type": "array"}}}
    if dialect == "chat":
        calls = [
            {
                "id": f"c{n}",
                "type": "function",
                "function": {"name": "odd_sum", "arguments": f'{{"of": [{n}]}}'},
            }
            for n in (1, 3)
        ]
        return {
            "model": "m", "max_completion_tokens": 64, "temperature": 0.5, "tool_choice": "required",
            "tools": [{"type": "function", "function": {"name": "odd_sum", "description": "Σ", "parameters": schema}}],
            "parallel_tool_calls": False,
            "messages": [
                {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Sum."},
                {"role": "assistant", "content": "So.", "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": "1"}, {"role": "tool", "tool_call_id": "c3", "content": "3"},
                {"role": "user", "content": PARTS["chat"]},
            ],
        }  # fmt: skip
    if dialect == "responses":
        return {
            "model": "m", "max_output_tokens": 64, "temperature": 0.5, "tool_choice": "required", "instructions": "Be kind.",
            "tools": [{"type": "function", "name": "odd_sum", "description": "Σ", "parameters": schema}],
            "parallel_tool_calls": False,
            "input": [
                {"role": "user", "content": "Sum."},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So.", "annotations": []}]},
                *[{"type": "function_call", "call_id": f"c{n}", "name": "odd_sum", "arguments": f'{{"of": [{n}]}}'} for n in (1, 3)],
                *[{"type": "function_call_output", "call_id": f"c{n}", "output": str(n)} for n in (1, 3)],
                {"role": "user", "content": PARTS["responses"]},
            ],
        }  # fmt: skip
    uses = [{"type": "tool_use", "id": f"c{n}", "name": "odd_sum", "input": {"of": [n]}} for n in (1, 3)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": str(n)} for n in (1, 3)]
    return {
        "model": "m", "max_tokens": 64, "temperature": 0.5, "system": "Be kind.",
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "tools": [{"name": "odd_sum", "description": "Σ", "input_schema": schema}],
        "messages": [
            {"role": "user", "content": "Sum."},
            {"role": "assistant", "content": [{"type": "text", "text": "So."}, *uses]},
            {"role": "user", "content": [*results, *PARTS["messages"]]},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_is_asked_is_the_same_in_another_dialect(source: Dialect, target: Dialect) -> None:
    ask = codec_of(source).read(encoded(talk(source)))
    sent = codec_of(target).request_body(ask)
    assert sent == talk(target)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
def test_whatever_is_asked_can_be_told_or_is_refused(
    source: Dialect, target: Dialect, data: st.DataObject
) -> None:
    ask = codec_of(source).read(encoded(data.draw(bodies[source])))
    try:
        sent = codec_of(target).request_body(ask)
    except Unanswerable as error:
        assert "cannot be told in" in str(error)  # noqa: PT017
        return
    again = codec_of(target).read(encoded(sent))
    assert again.sampling.temperature == ask.sampling.temperature
    assert "".join(m.text for m in again.messages if m.speaker == "tool") == "".join(
        m.text for m in ask.messages if m.speaker == "tool"
    )


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_is_answered_is_the_same_in_another_dialect(source: Dialect, target: Dialect) -> None:
    """The server answers in its dialect; the program hears it in its own."""
    message = says("So.", ("odd_sum", '{"of": [1, 3]}'), thinking="Hm.")
    served = answered(
        target, ReplyChoice(message=message, finish="tool_calls"), asked=request(target, **_thinks(target))
    )
    reply = codec_of(target).reply(codec_of(target).body(served), policy="p")
    told = answered(source, *reply.choices, asked=request(source, **_thinks(source)))
    heard = codec_of(source).reply(codec_of(source).body(told), policy="p")
    assert heard.choices[0].message == message
    assert heard.choices[0].finish == "tool_calls"


def _thinks(dialect: Dialect) -> dict[str, Any]:
    return {"thinking": {"type": "adaptive"}} if dialect == "messages" else {}


def test_tools_of_namespaces_and_plain_text_become_functions() -> None:
    tools = [
        {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}]},
        {"type": "custom", "name": "apply_patch", "description": "Patch."}, {"type": "web_search"},
    ]  # fmt: skip
    ask = codec_of("responses").read(encoded(request("responses", tools=tools)))
    sent = codec_of("chat").request_body(ask)["tools"]
    assert [tool["function"]["name"] for tool in sent] == ["team__spawn", "apply_patch"]
    assert sent[1]["function"]["parameters"]["required"] == ["input"]
    assert codec_of("responses").request_body(ask)["tools"] == tools


def test_a_part_that_has_no_words_elsewhere() -> None:
    part = {"type": "search_result", "source": "x", "title": "t", "content": []}
    asked = request("messages") | {"messages": [{"role": "user", "content": [part]}]}
    ask = codec_of("messages").read(encoded(asked))
    with pytest.raises(Unanswerable, match="'search_result' of Messages cannot be told in Chat Completions"):
        codec_of("chat").request_body(ask)
