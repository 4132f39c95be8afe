"""The official Anthropic SDK for Python as a client: everything its helpers compute is what was scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sdk_plays import LONG, Plays, only_with_sdks, served

only_with_sdks()

import anthropic  # noqa: E402
from pydantic import BaseModel  # noqa: E402


class City(BaseModel):
    city: str
    km: float


TOOLS: list[Any] = [
    {"name": name, "description": "Odd.", "input_schema": {"type": "object", "properties": {}}}
    for name in ("odd_sum", "look-up")
]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Plays]]:
    with served(tmp_path_factory.mktemp("anthropic")) as (serving, plays):
        yield serving.address, plays


@pytest.fixture
def client(endpoint: tuple[str, Plays], request: pytest.FixtureRequest) -> anthropic.Anthropic:
    name = request.node.name.replace("[", "-").replace("]", "")
    return anthropic.Anthropic(base_url=f"{endpoint[0]}/s/{name}", api_key="none")


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": text}], **more}


def test_messages(client: anthropic.Anthropic, endpoint: tuple[str, Plays]) -> None:
    system: Any = [
        {"type": "text", "text": "Be long.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind."},
    ]
    told = client.messages.create(
        **asked("say it", system=system, stop_sequences=["##"], extra_body={"top_k": 5})
    )
    assert told.content[0].type == "text"
    assert told.content[0].text == LONG
    assert told.stop_reason == "end_turn"
    usage = told.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (23, 8, 17)
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 5
    heard = endpoint[1].asks[-1]
    assert heard.messages[0].text == "Be long.\nBe kind."
    assert (heard.sampling.top_k, heard.sampling.stop) == (5, ("##",))


def test_messages_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**asked("say it")) as stream:
        assert "".join(stream.text_stream) == LONG
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (23, 17)
    raw = [event.type for event in client.messages.create(**asked("say it"), stream=True)]
    assert [kind for kind in raw if kind != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip


def test_tools_in_parallel(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**asked("tools please", tools=TOOLS)) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert snapshots[-1] == {"what": "Århus"}
    assert final.stop_reason == "tool_use"
    uses: list[Any] = [block for block in final.content if block.type == "tool_use"]
    assert [(use.name, use.input) for use in uses] == [
        ("odd_sum", {"of": [1, 3]}),
        ("look-up", {"what": "Århus"}),
    ]
    failed = [{"type": "text", "text": "?"}]
    results = [
        {"type": "tool_result", "tool_use_id": uses[0].id, "content": "4"},
        {"type": "tool_result", "tool_use_id": uses[1].id, "content": failed, "is_error": True},
    ]
    again = asked("tools please", tools=TOOLS)
    again["messages"] += [
        {"role": "assistant", "content": final.content},
        {"role": "user", "content": results},
    ]
    told: Any = client.messages.create(**again)
    assert told.content[0].text == "odd_sum=4 and look-up=?!"


def test_thoughts_come_when_asked_for(client: anthropic.Anthropic) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    with client.messages.stream(**asked("think first", thinking=thinking) | {"max_tokens": 4096}) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    thought: Any = final.content[0]
    assert (thought.thinking, thought.signature) == ("A dozen. " * 9, "c2ln")
    without = client.messages.create(**asked("think first"))
    assert [block.type for block in without.content] == ["text"]


def test_parses_a_schema(client: anthropic.Anthropic) -> None:
    told = client.messages.parse(**asked("json please"), output_format=City)
    assert told.parsed_output == City(city="Århus", km=12.5)
    with client.messages.stream(**asked("json please"), output_format=City) as stream:
        assert stream.get_final_message().parsed_output == City(city="Århus", km=12.5)


def test_endings(client: anthropic.Anthropic) -> None:
    assert client.messages.create(**asked("cut")).stop_reason == "max_tokens"
    stopped = client.messages.create(**asked("stopped", stop_sequences=["three"]))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "three")
    assert client.messages.create(**asked("no")).stop_reason == "refusal"


def test_async_and_beta(endpoint: tuple[str, Plays]) -> None:
    async def run() -> None:
        async with anthropic.AsyncAnthropic(base_url=endpoint[0], api_key="baton-async") as client:
            told: list[Any] = await asyncio.gather(
                *[client.messages.create(**asked(f"say {n}")) for n in range(8)]
            )
            assert [t.content[0].text for t in told] == [LONG] * 8
            assert len({t.id for t in told}) == 8
            async with client.messages.stream(**asked("tools x", tools=TOOLS)) as stream:
                final = await stream.get_final_message()
            assert len([b for b in final.content if b.type == "tool_use"]) == 2
            beta: Any = await client.beta.messages.create(
                **asked("say it"), betas=["context-management-2025-06-27"],
                context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            )  # fmt: skip
            assert beta.content[0].text == LONG

    asyncio.run(run())
    heard = endpoint[1].asks[-1]
    assert heard.extra["context_management"] == {
        "edits": [{"type": "clear_thinking_20251015", "keep": "all"}]
    }
    assert heard.wording["headers"]["anthropic-beta"] == "context-management-2025-06-27"


def test_tool_runner(client: anthropic.Anthropic) -> None:
    def odd_sum(of: list[int]) -> str:
        """Sum of odd numbers.

        Args:
            of: The numbers.
        """
        return str(sum(of))

    def look_up(what: str) -> str:
        """Look it up.

        Args:
            what: A word.
        """
        return what.upper()

    tools: Any = [anthropic.beta_tool(odd_sum), anthropic.beta_tool(look_up, name="look-up")]
    runner = client.beta.messages.tool_runner(**asked("tools please"), tools=tools)
    final: Any = runner.until_done()
    assert final.content[0].text == "odd_sum=4 and look-up=ÅRHUS"


def test_a_refusal_is_heard_once(client: anthropic.Anthropic, endpoint: tuple[str, Plays]) -> None:
    with pytest.raises(anthropic.BadRequestError, match="no answer here"):
        client.messages.create(**asked("refused by messages"))
    assert endpoint[1].asked["refused"] == 1
    told: Any = client.messages.create(**asked("later please"))
    assert told.content[0].text == LONG
    with pytest.raises(anthropic.BadRequestError, match="`top_p` is a number"):
        client.messages.create(**asked("say it", extra_body={"top_p": 3}))


def test_counting_and_models(client: anthropic.Anthropic) -> None:
    few = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "say it"}])
    many = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": LONG}], tools=TOOLS)
    assert 0 < few.input_tokens < many.input_tokens
    assert [model.id for model in client.models.list()] == ["plays"]


def test_a_thread_sends_only_what_is_new(client: anthropic.Anthropic, endpoint: tuple[str, Plays]) -> None:
    thread = client.beta.messages.thread(model="m", max_tokens=99, system="Be kind.", tools=TOOLS)
    first: Any = thread.send({"role": "user", "content": "tools please"})
    uses = [block for block in first.content if block.type == "tool_use"]
    results: Any = [{"type": "tool_result", "tool_use_id": use.id, "content": "7"} for use in uses]
    told: Any = thread.send({"role": "user", "content": results})
    assert told.content[0].text == "odd_sum=7 and look-up=7"
    heard = endpoint[1].asks[-1]
    assert heard.extra["thread"] == {"type": "continue", "previous_message_id": first.id}
    assert [m.speaker for m in heard.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [tool.name for tool in heard.tools] == ["odd_sum", "look-up"]
    elsewhere: Any = anthropic.Anthropic(base_url=f"{endpoint[0]}/s/elsewhere", api_key="none")
    thread._client = elsewhere  # where nobody knows the thread, its SDK sends all of it
    again: Any = thread.send({"role": "user", "content": "And?"})
    assert again.content[0].text == "odd_sum=7 and look-up=7"
    assert endpoint[1].asks[-1].messages[-1].text == "And?"
