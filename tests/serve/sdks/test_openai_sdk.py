"""The official OpenAI SDK for Python as a client: everything its helpers compute is held against what was scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sdk_plays import CITY, LOGPROBS, LONG, TOKENS, Plays, only_with_sdks, served

only_with_sdks()

import openai  # noqa: E402
from pydantic import BaseModel  # noqa: E402


class City(BaseModel):
    city: str
    km: float


TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("odd_sum", "look-up")
]
FUNCTIONS: list[Any] = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    for name in ("odd_sum", "look-up")
]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Plays]]:
    with served(tmp_path_factory.mktemp("openai")) as (serving, plays):
        yield serving.address, plays


@pytest.fixture
def client(endpoint: tuple[str, Plays], request: pytest.FixtureRequest) -> openai.OpenAI:
    name = request.node.name.replace("[", "-").replace("]", "")
    return openai.OpenAI(base_url=f"{endpoint[0]}/s/{name}/v1", api_key="none")


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


# Chat Completions


def test_chat(client: openai.OpenAI) -> None:
    told = client.chat.completions.create(model="m", messages=user("say it"), temperature=0.5, seed=3)
    assert told.choices[0].message.content == LONG
    assert told.choices[0].finish_reason == "stop"
    assert told.usage is not None
    assert (told.usage.prompt_tokens, told.usage.completion_tokens, told.usage.total_tokens) == (31, 17, 48)
    assert told.usage.prompt_tokens_details is not None
    assert told.usage.prompt_tokens_details.cached_tokens == 8
    assert told.usage.completion_tokens_details is not None
    assert told.usage.completion_tokens_details.reasoning_tokens == 5
    assert told.id.startswith("chatcmpl-")


def test_chat_streams(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="m", messages=user("say it"), stream=True, stream_options={"include_usage": True}
        )
    )
    assert len(chunks) > 5
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == LONG
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 48
    assert len({c.id for c in chunks}) == 1


def test_chat_tools_in_parallel(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="m", messages=user("tools please"), tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 2
    message = final.choices[0].message
    assert message.content == "Let me see."
    assert message.tool_calls is not None
    assert [(c.function.name, c.function.arguments) for c in message.tool_calls] == [
        ("odd_sum", '{"of": [1, 3]}'), ("look-up", '{"what": "Århus"}'),
    ]  # fmt: skip
    assert final.choices[0].finish_reason == "tool_calls"
    results = [
        {"role": "tool", "tool_call_id": c.id, "content": str(n)} for n, c in enumerate(message.tool_calls)
    ]
    plain = client.chat.completions.create(model="m", messages=user("tools please"), tools=TOOLS)
    assert [c.id for c in plain.choices[0].message.tool_calls or []] != []
    asked: Any = [*user("tools please"), message.model_dump(exclude_none=True), *results]
    told = client.chat.completions.create(model="m", messages=asked, tools=TOOLS)
    assert told.choices[0].message.content == "odd_sum=0 and look-up=1"


def test_chat_parses_a_schema(client: openai.OpenAI) -> None:
    told = client.chat.completions.parse(model="m", messages=user("json please"), response_format=City)
    assert told.choices[0].message.parsed == City(city="Århus", km=12.5)
    with client.chat.completions.stream(
        model="m", messages=user("json please"), response_format=City
    ) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.parsed == City(city="Århus", km=12.5)


@pytest.mark.parametrize("streamed", [False, True])
def test_chat_logprobs(client: openai.OpenAI, streamed: bool) -> None:
    asked: dict[str, Any] = {
        "model": "m",
        "messages": user("tokens please"),
        "logprobs": True,
        "top_logprobs": 2,
    }
    if streamed:
        with client.chat.completions.stream(**asked) as stream:
            stream.until_done()
            told: Any = stream.get_final_completion()
    else:
        told = client.chat.completions.create(**asked)
    records = told.choices[0].logprobs.content
    assert [r.token for r in records] == list(TOKENS)
    assert [r.logprob for r in records] == list(LOGPROBS)
    assert [len(r.top_logprobs) for r in records] == [2] * 5
    assert bytes(records[0].bytes) == b"Yes"


@pytest.mark.parametrize("streamed", [False, True])
def test_chat_several_answers(client: openai.OpenAI, streamed: bool) -> None:
    if streamed:
        with client.chat.completions.stream(model="m", messages=user("several please"), n=3) as stream:
            stream.until_done()
            told: Any = stream.get_final_completion()
    else:
        told = client.chat.completions.create(model="m", messages=user("several please"), n=3)
    assert [c.message.content for c in told.choices] == ["answer 0", "answer 1", "answer 2"]
    assert [c.index for c in told.choices] == [0, 1, 2]


def test_chat_endings(client: openai.OpenAI, endpoint: tuple[str, Plays]) -> None:
    def one(word: str, **more: Any) -> Any:
        return client.chat.completions.create(model="m", messages=user(word), **more).choices[0]

    assert one("cut", max_completion_tokens=5).finish_reason == "length"
    assert endpoint[1].asks[-1].sampling.max_tokens == 5
    assert one("stopped", stop=["three", "four"]).message.content == "One, two, "
    assert one("no").message.refusal == "I will not."
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="m", messages=user("cut"), response_format=City)


def test_chat_thoughts(client: openai.OpenAI) -> None:
    told: Any = client.chat.completions.create(model="m", messages=user("think first"))
    assert told.choices[0].message.reasoning_content == "A dozen. " * 9
    chunks = client.chat.completions.create(model="m", messages=user("think first"), stream=True)
    thought = "".join(
        getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks if c.choices
    )
    assert thought == "A dozen. " * 9


def test_chat_legacy_functions(client: openai.OpenAI) -> None:
    functions: list[Any] = [{"name": "odd_sum", "parameters": {"type": "object"}}]
    told: Any = client.chat.completions.create(model="m", messages=user("tools please"), functions=functions)
    assert told.choices[0].message.function_call.name == "odd_sum"
    assert told.choices[0].finish_reason == "function_call"
    asked: Any = [
        *user("tools please"), told.choices[0].message.model_dump(exclude_none=True),
        {"role": "function", "name": "odd_sum", "content": "4"},
    ]  # fmt: skip
    again = client.chat.completions.create(model="m", messages=asked, functions=functions)
    assert again.choices[0].message.content == "odd_sum=4"


# Responses


def test_responses(client: openai.OpenAI) -> None:
    told = client.responses.create(model="m", input="say it", instructions="Be long.")
    assert told.output_text == LONG
    assert told.status == "completed"
    assert told.usage is not None
    assert (told.usage.input_tokens, told.usage.output_tokens, told.usage.total_tokens) == (31, 17, 48)
    assert told.usage.input_tokens_details.cached_tokens == 8
    assert told.usage.output_tokens_details.reasoning_tokens == 5
    assert told.instructions == "Be long."


def test_responses_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input="say it") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == LONG
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events if "delta" not in e.type]
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    snapshots = [e.snapshot for e in events if e.type == "response.output_text.delta"]
    assert snapshots[-1] == LONG


def test_responses_tools(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input="tools please", tools=FUNCTIONS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds.count("response.function_call_arguments.done") == 2
    calls = [item for item in final.output if item.type == "function_call"]
    assert [(c.name, c.arguments) for c in calls] == [
        ("odd_sum", '{"of": [1, 3]}'), ("look-up", '{"what": "Århus"}'),
    ]  # fmt: skip
    results: list[Any] = [
        {"type": "function_call_output", "call_id": c.call_id, "output": str(n)} for n, c in enumerate(calls)
    ]
    kept = client.responses.create(model="m", input=results, tools=FUNCTIONS, previous_response_id=final.id)
    assert kept.output_text == "odd_sum=0 and look-up=1"
    assert kept.previous_response_id == final.id
    echoed: Any = [
        *user("tools please"),
        *[item.model_dump(exclude_none=True) for item in final.output],
        *results,
    ]
    assert client.responses.create(model="m", input=echoed, tools=FUNCTIONS).output_text == kept.output_text


def test_responses_parse_a_schema(client: openai.OpenAI) -> None:
    told = client.responses.parse(model="m", input="json please", text_format=City)
    assert told.output_parsed == City(city="Århus", km=12.5)
    with client.responses.stream(model="m", input="json please", text_format=City) as stream:
        assert stream.get_final_response().output_parsed == City(city="Århus", km=12.5)


def test_responses_free_text_tool(client: openai.OpenAI) -> None:
    tool: Any = {
        "type": "custom", "name": "apply_patch", "description": "Patch.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    }  # fmt: skip
    with client.responses.stream(model="m", input="patch it", tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        call: Any = stream.get_final_response().output[0]
    assert (call.type, call.name) == ("custom_tool_call", "apply_patch")
    assert call.input == "*** Begin Patch\n+ é\n*** End Patch"
    assert "response.custom_tool_call_input.done" in kinds
    done: Any = [
        *user("patch it"), call.model_dump(exclude_none=True),
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "patched"},
    ]  # fmt: skip
    assert client.responses.create(model="m", input=done, tools=[tool]).output_text == "apply_patch=patched"


def test_responses_thoughts(client: openai.OpenAI) -> None:
    told = client.responses.create(
        model="m", input="think first", include=["reasoning.encrypted_content"], store=False
    )
    thought: Any = told.output[0]
    assert thought.type == "reasoning"
    assert thought.summary[0].text == "A dozen. " * 9
    assert thought.encrypted_content == "c2ln"
    assert told.output_text == "Twelve."
    without: Any = client.responses.create(model="m", input="think first").output[0]
    assert without.encrypted_content is None


def test_responses_logprobs(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "m", "input": "tokens please", "top_logprobs": 2, "include": ["message.output_text.logprobs"],
    }  # fmt: skip
    told: Any = client.responses.create(**asked)
    assert [r.logprob for r in told.output[0].content[0].logprobs] == list(LOGPROBS)
    with client.responses.stream(**asked) as stream:
        deltas: list[Any] = [e for e in stream if e.type == "response.output_text.delta"]
    assert [d.delta for d in deltas] == list(TOKENS)
    assert [d.logprobs[0].logprob for d in deltas] == list(LOGPROBS)


def test_responses_endings(client: openai.OpenAI) -> None:
    cut = client.responses.create(model="m", input="cut", max_output_tokens=16)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    no: Any = client.responses.create(model="m", input="no").output[0]
    assert no.content[0].refusal == "I will not."


# Both


def test_async(endpoint: tuple[str, Plays]) -> None:
    async def run() -> None:
        async with openai.AsyncOpenAI(base_url=f"{endpoint[0]}/v1", api_key="baton-async") as client:
            told = await asyncio.gather(
                *[client.chat.completions.create(model="m", messages=user(f"say {n}")) for n in range(8)]
            )
            assert [t.choices[0].message.content for t in told] == [LONG] * 8
            assert len({t.id for t in told}) == 8
            async with client.responses.stream(model="m", input="json please", text_format=City) as stream:
                final = await stream.get_final_response()
            assert final.output_text == CITY
            async with client.chat.completions.stream(
                model="m", messages=user("tools x"), tools=TOOLS
            ) as chat:
                completion = await chat.get_final_completion()
            assert len(completion.choices[0].message.tool_calls or []) == 2

    asyncio.run(run())


def test_a_refusal_is_heard_once_and_a_pause_is_waited_out(
    client: openai.OpenAI, endpoint: tuple[str, Plays]
) -> None:
    plays = endpoint[1]
    with pytest.raises(openai.BadRequestError, match="no answer here"):
        client.chat.completions.create(model="m", messages=user("refused by chat"))
    with pytest.raises(openai.BadRequestError, match="no answer here"):
        client.responses.create(model="m", input="refused by responses")
    assert plays.asked["refused"] == 2
    told = client.chat.completions.create(model="m", messages=user("later please"))
    assert told.choices[0].message.content == LONG
    assert plays.asked["later"] == 2
    with pytest.raises(openai.BadRequestError, match="`temperature` is a number"):
        client.chat.completions.create(model="m", messages=user("say"), temperature=7)
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(model="m", input="say", previous_response_id="resp_nobody")


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["plays"]
