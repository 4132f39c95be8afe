"""pydantic-ai 2.62, run offline with its own FunctionModel and received over OTLP; what is true was written by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from connect_receiver import page_is_true, received, receiving, tokens
from connect_story import only_in, story

only_in("pydantic_ai")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from pydantic_ai import Agent, RunContext  # noqa: E402
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart  # noqa: E402
from pydantic_ai.models.function import FunctionModel  # noqa: E402
from pydantic_ai.models.instrumented import InstrumentationSettings  # noqa: E402

from baton.connect.readers.otlp.protobuf import decode_traces, split_delimited  # noqa: E402


def results(messages: Any) -> list[Any]:
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def asks(*tools: tuple[str, dict[str, Any]]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, arguments) for name, arguments in tools])


def team() -> Agent[None, str]:
    """A lead asks two scouts at once, each of which asks a checker; the lead reads a clock, too."""

    def lead_says(messages: Any, _: Any) -> ModelResponse:
        if not results(messages):
            return asks(
                ("ask_scout", {"q": "north?"}), ("ask_scout", {"q": "south?"}), ("clock", {"zone": "UTC"})
            )
        return says("Lille, Nice, noon")

    def scout_says(messages: Any, _: Any) -> ModelResponse:
        got = results(messages)
        if not got:
            return asks(("lookup", {"key": "k"}))
        return asks(("check", {"claim": str(got[0])})) if len(got) == 1 else says(f"sure: {got[1]}")

    lead = Agent(FunctionModel(lead_says), name="lead")
    scout = Agent(FunctionModel(scout_says), name="scout")
    checker = Agent(FunctionModel(lambda messages, _: says("it is true")), name="checker")

    @lead.tool
    async def ask_scout(ctx: RunContext[None], q: str) -> str:
        return (await scout.run(q, usage=ctx.usage)).output

    @lead.tool_plain
    def clock(zone: str) -> str:
        return f"noon {zone}"

    @scout.tool_plain
    def lookup(key: str) -> str:
        return f"found {key}"

    @scout.tool
    async def check(ctx: RunContext[None], claim: str) -> str:
        return (await checker.run(claim, usage=ctx.usage)).output

    return lead


def test_delegation_nested_and_in_parallel(tmp_path: Path) -> None:
    with receiving(tmp_path) as provider:
        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        result = asyncio.run(team().run("Where?"))
    (trace,) = received(tmp_path).values()
    told = story(trace)
    assert set(told) == {"lead", "scout", "scout-2", "checker", "checker-2"}
    lead = Counter(told["lead"])
    assert lead["spawns scout: north?"] + lead["spawns scout-2: north?"] == 1
    assert lead["spawns scout: south?"] + lead["spawns scout-2: south?"] == 1
    assert lead['uses clock: {"zone":"UTC"}'] == lead["gets clock: noon UTC"] == 1
    assert told["lead"][-1] == "decides to stop: Lille, Nice, noon"
    assert told["lead"][-2].startswith("aggregates")
    assert told["lead"][-2].endswith("(inferred)")
    for scout, checkers in (("scout", "checker"), ("scout-2", "checker")):
        assert told[scout][:2] == ['uses lookup: {"key":"k"}', "gets lookup: found k"]
        assert told[scout][2].startswith(f"spawns {checkers}")
        assert told[scout][2].endswith(": found k")
        assert told[scout][3:] == ["returns to lead: sure: it is true"]
    assert {told[name][0].split(":")[0] for name in ("checker", "checker-2")} == {
        "returns to scout",
        "returns to scout-2",
    }
    # pydantic-ai adds up what all ten requests used; no span's sums are counted twice.
    assert len(trace.calls) == result.usage.requests == 10
    assert tokens(trace) == result.usage.input_tokens + result.usage.output_tokens
    assert "pydantic-ai" in (trace.header.system or "")


def test_the_decoder_agrees_with_opentelemetrys_own(tmp_path: Path) -> None:
    with receiving(tmp_path) as provider:
        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        asyncio.run(team().run("Where?"))
    (journal,) = (tmp_path / "received").iterdir()
    parts, torn = split_delimited(journal.read_bytes())
    assert torn == 0
    assert len(parts) > 1
    for part in parts:
        theirs = [
            span
            for group in ExportTraceServiceRequest.FromString(part).resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        ours = decode_traces(part)
        assert len(ours) == len(theirs) > 0
        for our, their in zip(ours, theirs, strict=True):
            assert (our.trace_id, our.span_id) == (their.trace_id.hex(), their.span_id.hex())
            assert (our.parent_id or "") == their.parent_span_id.hex()
            assert (our.name, our.start_ns, our.end_ns) == (
                their.name,
                their.start_time_unix_nano,
                their.end_time_unix_nano,
            )
            values = {
                pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in their.attributes
            }
            plain = {
                key: value for key, value in our.attributes.items() if not isinstance(value, list | dict)
            }
            assert plain == {key: values[key] for key in plain}
            assert set(our.attributes) == set(values)


def test_the_page(tmp_path: Path) -> None:
    page_is_true("pydantic-ai.md", tmp_path)
