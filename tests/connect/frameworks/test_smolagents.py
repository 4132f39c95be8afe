"""smolagents 1.26 by OpenInference, run offline with a scripted model; what is true was written down by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from connect_receiver import page_is_true, received, receiving, tokens
from connect_story import only_in, story

only_in("smolagents")

import smolagents  # noqa: E402
from openinference.instrumentation.smolagents import SmolagentsInstrumentor  # noqa: E402
from smolagents import CodeAgent, Tool, ToolCallingAgent  # noqa: E402
from smolagents.models import (  # noqa: E402
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
)
from smolagents.monitoring import TokenUsage  # noqa: E402


class Scripted(Model):
    """Ten tokens for each message it is told, three for an answer."""

    def __init__(self, *script: Any) -> None:
        super().__init__(model_id="scripted")
        self.script = list(script)
        self.spent = 0

    def generate(self, messages: Any, *_: Any, **__: Any) -> ChatMessage:
        said = self.script.pop(0)
        usage = TokenUsage(input_tokens=10 * len(messages), output_tokens=3)
        self.spent += usage.total_tokens
        if isinstance(said, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=said, token_usage=usage)
        id_, name, arguments = said
        call = ChatMessageToolCall(
            id=id_, type="function", function=ChatMessageToolCallFunction(name=name, arguments=arguments)
        )
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call], token_usage=usage)


smolagents.Scripted = Scripted  # OpenInference instruments what the package exports


class Lookup(Tool):  # type: ignore[misc]
    name = "lookup"
    description = "Look it up."
    inputs = {"q": {"type": "string", "description": "what"}}  # noqa: RUF012
    output_type = "string"

    def forward(self, q: str) -> str:
        return f"found {q}"


def scout(*script: Any) -> ToolCallingAgent:
    return ToolCallingAgent(
        tools=[Lookup()], model=Scripted(*script), name="scout", description="finds", verbosity_level=0
    )


def test_a_manager_delegates_twice_and_each_time_to_an_empty_memory(tmp_path: Path) -> None:
    with receiving(tmp_path) as provider:
        instrumentor = SmolagentsInstrumentor()
        instrumentor.instrument(tracer_provider=provider)
        one = scout(
            ("s1", "lookup", {"q": "F"}), ("s2", "final_answer", {"answer": "Paris"}),
            ("s3", "lookup", {"q": "G"}), ("s4", "final_answer", {"answer": "Lyon"}),
        )  # fmt: skip
        model = Scripted(
            ("l1", "scout", {"task": "capital?"}), ("l2", "scout", {"task": "second?"}),
            ("l3", "final_answer", {"answer": "Paris, Lyon"}),
        )  # fmt: skip
        lead = ToolCallingAgent(
            tools=[], model=model, managed_agents=[one], name="lead", description="leads", verbosity_level=0
        )
        lead.run("Where?")
        instrumentor.uninstrument()
    (trace,) = received(tmp_path).values()
    told = story(trace)
    assert set(told) == {"lead", "scout", "scout-2"}
    spawns = [line for line in told["lead"] if line.startswith("spawns")]
    assert [line.split(":")[0] for line in spawns] == ["spawns scout", "spawns scout-2"]
    assert "capital?" in spawns[0]
    assert "second?" in spawns[1]
    assert told["lead"][-1] == "decides to stop: Paris, Lyon"
    assert told["scout"] == [
        'uses lookup: {"q":"F"}',
        "gets lookup: found F",
        'uses final_answer: {"answer":"Paris"}',
        "gets final_answer: Paris",
        "returns to lead: Paris",
    ]
    assert told["scout-2"][-1] == "returns to lead: Lyon"
    assert len(trace.calls) == 7
    assert tokens(trace) == model.spent + one.model.spent


def test_code_that_calls_an_agent_is_a_spawn_of_the_call_in_its_step(tmp_path: Path) -> None:
    with receiving(tmp_path) as provider:
        instrumentor = SmolagentsInstrumentor()
        instrumentor.instrument(tracer_provider=provider)
        one = scout(("s1", "final_answer", {"answer": "Paris"}))
        code = "<code>\nx = lookup(q='F')\ny = scout(task='capital?')\nfinal_answer(x)\n</code>"
        lead = CodeAgent(
            tools=[Lookup()], model=Scripted(code), managed_agents=[one], name="lead", description="leads",
            verbosity_level=0,
        )  # fmt: skip
        lead.run("Where?")
        instrumentor.uninstrument()
    (trace,) = received(tmp_path).values()
    told = story(trace)
    assert [line.split(":")[0] for line in told["lead"]] == [
        "uses lookup",
        "gets lookup",
        "spawns scout",
        "uses final_answer",
        "gets final_answer",
        "decides to stop",
    ]
    first = trace.events[0].call
    assert first is not None
    assert {e.call for e in trace.events if e.agent == "lead" and e.type in ("spawn", "tool_call")} == {first}


def test_the_page(tmp_path: Path) -> None:
    page_is_true("smolagents.md", tmp_path)
