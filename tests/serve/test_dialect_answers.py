"""What answers look like: golden bodies and streams, and for any answer the stream amounts to the body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_requests import answered, encoded, request, says
from golden_dialects import DIALECTS, HERE, golden_exchange, golden_files
from hypothesis import given
from hypothesis import strategies as st

from baton.serve.backend import Unanswerable
from baton.serve.dialects import codec_of
from baton.serve.dialects.fields import without_nulls
from baton.serve.dialects.names import response_id, with_ids
from baton.serve.dialects.sse import PIECE, events, pieces
from baton.serve.exchange import Alternative, Dialect, ReplyChoice, ToolAsk, Utterance
from baton.trace.records import Floats, Ints

texts = st.text(st.characters(codec="utf-8"), max_size=70)
THINKS = {"thinking": {"type": "adaptive"}}


@pytest.mark.parametrize("name", sorted(golden_files()))
def test_golden(name: str) -> None:
    assert (HERE / name).read_text() == golden_files()[name]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_same_exchange_is_told_in_the_same_bytes(dialect: Dialect) -> None:
    one, other = golden_exchange(dialect), golden_exchange(dialect)
    assert b"".join(codec_of(dialect).stream(one)) == b"".join(codec_of(dialect).stream(other))
    assert response_id(one).endswith("e7f3")


def _asked(dialect: Dialect) -> dict[str, Any]:
    options: dict[str, Any] = {
        "chat": {"stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2},
        "messages": THINKS,
        "responses": {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
    }[dialect]
    return request(dialect, stream=True, **options)


@st.composite
def choices(draw: st.DrawFn) -> ReplyChoice:
    objects = st.dictionaries(texts, st.integers() | texts, max_size=2).map(
        lambda o: json.dumps(o, ensure_ascii=False)
    )
    uses = tuple(
        ToolAsk(id=f"call_{n}", name=name, arguments=said)
        for n, (name, said) in enumerate(
            draw(st.lists(st.tuples(st.sampled_from(["odd_sum", "look-up"]), objects | texts), max_size=3))
        )
    )
    text = draw(texts)
    tokens = [text[n : n + 3] for n in range(0, len(text), 3)]
    ends = [min(len(text), 3 * (n + 1)) for n in range(len(tokens))]
    return ReplyChoice(
        message=Utterance(
            speaker="assistant", text=text, thinking=draw(texts), sign=draw(st.none() | st.just("c2ln")), uses=uses
        ),
        finish="tool_calls" if uses else draw(st.sampled_from(["stop", "length"])),
        said=text,
        token_ends=Ints(ends),
        logprobs=Floats([-0.25 * n for n in range(len(tokens))]),
        alternatives=tuple((Alternative(token=token, logprob=-1.0),) for token in tokens),
    )  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@given(choice=choices(), cut=st.integers(1, 90))
def test_a_stream_amounts_to_the_body_wherever_it_is_cut(
    dialect: Dialect, choice: ReplyChoice, cut: int
) -> None:
    exchange = answered(dialect, choice, asked=_asked(dialect))
    codec = codec_of(dialect)
    body = codec.body(exchange)
    whole = b"".join(codec.stream(exchange))
    chunks = [whole[n : n + cut] for n in range(0, len(whole), cut)]
    again = codec.gather(chunks)
    assert without_nulls(again) == without_nulls(json.loads(json.dumps(body)))
    windows = codec.gather([whole.replace(b"\n", b"\r\n")])
    assert windows == again


@pytest.mark.parametrize("dialect", DIALECTS)
@given(choice=choices())
def test_an_answer_is_understood_as_it_was_meant(dialect: Dialect, choice: ReplyChoice) -> None:
    exchange = answered(dialect, choice, asked=_asked(dialect))
    reply = codec_of(dialect).reply(codec_of(dialect).body(exchange), policy="p")
    (heard,) = reply.choices
    assert heard.finish == choice.finish
    assert heard.message.text == choice.message.text
    assert heard.message.thinking == choice.message.thinking
    assert [use.name for use in heard.message.uses] == [use.name for use in choice.message.uses]
    for use, meant in zip(heard.message.uses, choice.message.uses, strict=True):
        assert use.id == meant.id
        assert use.arguments == meant.arguments or json.loads(use.arguments) == json.loads(
            meant.arguments or "{}"
        )
    if dialect != "chat":
        assert heard.message.sign == choice.message.sign
    if dialect != "messages" and choice.message.text:
        assert heard.said == choice.message.text
        assert heard.logprobs == choice.logprobs
        assert heard.token_ends == choice.token_ends
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (31, 17, 8)


@given(text=texts | st.text(max_size=400))
def test_pieces_give_the_text(text: str) -> None:
    parts = list(pieces(text))
    assert "".join(parts) == text
    assert all(0 < len(part) <= PIECE for part in parts)


def test_sequence_numbers_and_names_of_a_responses_stream() -> None:
    told = list(events(codec_of("responses").stream(golden_exchange("responses"))))
    assert [data["sequence_number"] for _, data in told] == list(range(len(told)))
    assert all(name == data["type"] for name, data in told)
    opened = [data["output_index"] for name, data in told if name == "response.output_item.added"]
    assert opened == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_upstreams_answer_is_passed_on_as_it_is(dialect: Dialect) -> None:
    codec = codec_of(dialect)
    body = codec.body(golden_exchange(dialect)) | {"id": "up_1", "odd": {"kept": [1]}}
    exchange = golden_exchange(dialect)
    reply = codec.reply(body, policy="p")
    passed = answered(dialect, *reply.choices, raw=body)
    assert codec.body(passed) is body
    assert response_id(passed) == "up_1"
    assert codec.gather(codec.stream(passed))["odd"] == {"kept": [1]} or dialect == "chat"
    assert exchange.reply is not None


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "body", [{}, {"choices": []}, {"output": 3}, {"content": "x"}, {"error": {"message": "no"}}]
)
def test_what_is_no_answer(dialect: Dialect, body: dict[str, Any]) -> None:
    with pytest.raises(Unanswerable):
        codec_of(dialect).reply(body, policy="p")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"data: [DONE]\n\n",
        b"data: {\n\n",
        b'event: error\ndata: {"type":"error","error":{"message":"x"}}\n\n',
    ],
)
def test_what_is_no_stream(dialect: Dialect, stream: bytes) -> None:
    with pytest.raises(Unanswerable):
        codec_of(dialect).gather([stream])


def test_several_answers_and_legacy_functions() -> None:
    asked = request("chat", n=2, functions=[{"name": "odd_sum"}])
    exchange = answered("chat", ReplyChoice(message=says("", ("odd_sum", "{}")), finish="tool_calls"),
                        ReplyChoice(message=says("b"), finish="length"), asked=asked)  # fmt: skip
    first, second = codec_of("chat").body(exchange)["choices"]
    assert first["message"]["function_call"] == {"name": "odd_sum", "arguments": "{}"}
    assert "tool_calls" not in first["message"]
    assert first["finish_reason"] == "function_call"
    assert (second["index"], second["finish_reason"]) == (1, "length")


def test_what_was_not_measured_is_left_out() -> None:
    nobody = {
        "prompt_tokens": None,
        "completion_tokens": None,
        "cached_tokens": None,
        "thinking_tokens": None,
    }
    for dialect in ("chat", "responses"):
        assert (
            codec_of(dialect).body(answered(dialect, ReplyChoice(message=says("x")), **nobody))["usage"]
            is None
        )


def test_ids_of_tools_are_the_exchanges_and_names_are_the_programs() -> None:
    tools = [
        {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "spawn"}]},
        {"type": "custom", "name": "apply_patch"},
    ]
    ask = codec_of("responses").read(encoded(request("responses", tools=tools)))
    uses = (
        ToolAsk(id="", name="team__spawn", arguments="{}"),
        ToolAsk(id="", name="apply_patch", arguments='{"input": "*** ø"}'),
        ToolAsk(id="own", name="team/spawn", arguments="{}"),
    )
    exchange = answered("responses", ReplyChoice(message=Utterance(speaker="assistant", uses=uses)))
    assert exchange.reply is not None
    named = with_ids(exchange.reply, ask=ask, exchange_id="e7f3").choices[0].message.uses
    assert [(use.id, use.name, use.arguments) for use in named] == [
        ("call_e7f3_0", "team/spawn", "{}"), ("call_e7f3_1", "apply_patch", "*** ø"), ("own", "team/spawn", "{}"),
    ]  # fmt: skip


def _broken(value: Any, path: list[int], new: Any) -> Any:
    if not path or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    value[key] = _broken(value[key], path[1:], new)
    return value


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just("x") | st.floats(-2, 2),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["type", "index", "x"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
paths = st.lists(st.integers(0, 12), max_size=7)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(path=paths, new=odd)
def test_a_servers_broken_answer_is_refused_or_can_be_passed_on(
    dialect: Dialect, path: list[int], new: Any
) -> None:
    codec = codec_of(dialect)
    body = _broken(json.loads(json.dumps(codec.body(golden_exchange(dialect)))), path, new)
    try:
        reply = codec.reply(body, policy="p")
    except Unanswerable as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    passed = answered(dialect, *reply.choices, raw=body)
    assert b"".join(codec.stream(passed))
    assert codec.body(passed) is body


@pytest.mark.parametrize("dialect", DIALECTS)
@given(place=st.integers(0, 40), path=paths, new=odd)
def test_a_servers_broken_stream_is_refused(dialect: Dialect, place: int, path: list[int], new: Any) -> None:
    codec = codec_of(dialect)
    told = [data for _, data in events(codec.stream(golden_exchange(dialect)))]
    told[place % len(told)] = _broken(told[place % len(told)], path, new)
    stream = b"".join(b"data: " + json.dumps(data).encode() + b"\n\n" for data in told)
    try:
        codec.reply(codec.gather([stream]), policy="p")
    except Unanswerable as error:
        assert len(str(error)) < 500  # noqa: PT017
