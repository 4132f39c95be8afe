"""agent-framework 1.23, run offline with a scripted client and received over OTLP; the truth was written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connect_receiver import page_is_true, received, receiving, tokens
from connect_story import only_in, story

only_in("agent_framework")

from agent_framework import (  # noqa: E402
    Agent,
    AgentExecutor,
    AgentExecutorResponse,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer, enable_sensitive_telemetry  # noqa: E402
from opentelemetry import trace as otel  # noqa: E402

Says = Callable[[Any], Any]


class Scripted(FunctionInvocationLayer, ChatTelemetryLayer, BaseChatClient):  # type: ignore[misc]
    """Ten tokens for each message it is told, three for an answer."""

    OTEL_PROVIDER_NAME = "scripted"

    def __init__(self, says: Says) -> None:
        super().__init__()
        self.says = says

    def _inner_get_response(self, *, messages: Any, stream: bool, **_: Any) -> Any:
        said = self.says(messages)
        contents = (
            [Content.from_text(said)]
            if isinstance(said, str)
            else [Content.from_function_call(call_id=i, name=n, arguments=a) for i, n, a in said]
        )
        told = 10 * len(messages)
        usage = {"input_token_count": told, "output_token_count": 3, "total_token_count": told + 3}

        async def parts() -> Any:
            yield ChatResponseUpdate(role="assistant", contents=[*contents, Content.from_usage(usage)])

        async def whole() -> Any:
            message = Message(role="assistant", contents=contents)
            return ChatResponse(messages=[message], usage_details=usage, model="scripted-1")

        return self._build_response_stream(parts()) if stream else whole()


def results(messages: Any) -> list[Any]:
    return [
        part.result for message in messages for part in message.contents if part.type == "function_result"
    ]


@tool(approval_mode="never_require")
def lookup(key: str) -> str:
    """Look it up."""
    return f"found {key}"


@executor(id="join")
async def join(found: list[AgentExecutorResponse], ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(" and ".join(one.agent_response.text for one in found))


def test_agents_as_tools_and_a_workflow_with_a_fan_in(tmp_path: Path) -> None:
    with receiving(tmp_path) as provider:
        otel.set_tracer_provider(provider)
        enable_sensitive_telemetry()
        asyncio.run(_program())
    found = received(tmp_path)
    team, flow = found["Where?"], found["go"]
    told = story(team)
    assert set(told) == {"lead", "scout", "scout-2"}
    assert sorted(line.split(": ")[1] for line in told["lead"] if line.startswith("spawns")) == [
        "first?",
        "second?",
    ]
    assert told["lead"][-1] == "decides to stop: both found"
    for scout in ("scout", "scout-2"):
        assert told[scout] == ['uses lookup: {"key": "k"}', "gets lookup: found k", "returns to lead: there"]
    # lead: 1 message, then 3 or more; each scout: 1, then 3. Counted by hand from what each was told.
    assert tokens(team) == (10 + 3) + (30 + 3) + 2 * ((10 + 3) + (30 + 3))
    told = story(flow)
    assert [line.split(":")[0] for line in told["press"]] == [
        "spawns writer",
        "spawns p1",
        "spawns p2",
        "aggregates p1, p2",
        "decides to stop",
    ]
    assert told["p1"] == ["returns to press: one"]
    (fused,) = [event for event in flow.events if event.type == "aggregate"]
    assert not fused.inferred
    sources = {
        flow.event(edge.src).agent for edge in flow.edges if (edge.dst, edge.type) == (fused.id, "aggregate")
    }
    assert sources == {"p1", "p2"}
    assert len(flow.calls) == 3


async def _program() -> None:
    scout = Agent(
        client=Scripted(lambda m: "there" if results(m) else [("s", "lookup", {"key": "k"})]), name="scout",
        tools=[lookup],
    )  # fmt: skip
    asked = [("l1", "ask_scout", {"task": "first?"}), ("l2", "ask_scout", {"task": "second?"})]
    lead = Agent(
        client=Scripted(lambda m: "both found" if results(m) else asked), name="lead",
        tools=[scout.as_tool(name="ask_scout", description="ask", arg_name="task")],
    )  # fmt: skip
    await lead.run("Where?")

    def alone(name: str, answer: str) -> AgentExecutor:
        return AgentExecutor(Agent(client=Scripted(lambda m: answer), name=name))

    writer, one, two = alone("writer", "draft"), alone("p1", "one"), alone("p2", "two")
    builder = WorkflowBuilder(start_executor=writer, name="press")
    await builder.add_fan_out_edges(writer, [one, two]).add_fan_in_edges([one, two], join).build().run("go")


def test_the_page(tmp_path: Path) -> None:
    page_is_true("agent-framework.md", tmp_path)
