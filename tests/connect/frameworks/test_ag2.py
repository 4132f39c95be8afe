"""AG2 1.2.1, run offline with its own test model; what is true was written down by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from connect_story import check_page, edges, keep_golden, only_in, prompts, recorded, spent, story

only_in("ag2")

from ag2 import Agent  # noqa: E402
from ag2.events import ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, Usage  # noqa: E402
from ag2.testing import TestConfig  # noqa: E402
from ag2.tools import tool  # noqa: E402

from baton.connect import record  # noqa: E402


def says(text: str, prompt: int | None = None, completion: int | None = None) -> ModelResponse:
    return ModelResponse(
        ModelMessage(text), usage=Usage(prompt_tokens=prompt, completion_tokens=completion), model="fake"
    )


def calls(*wanted: tuple[str, str, str]) -> ModelResponse:
    events = [ToolCallEvent(id=id_, name=name, arguments=arguments) for id_, name, arguments in wanted]
    return ModelResponse(
        tool_calls=ToolCallsEvent(events), usage=Usage(prompt_tokens=20, completion_tokens=5), model="fake"
    )


def agent(name: str, *answers: Any, **more: Any) -> Agent[Any]:
    return Agent(name, config=TestConfig(*answers, raise_tool_errors=False), **more)


@tool
def lookup(q: str) -> str:
    """Look it up."""
    return {"France": "Paris", "second": "Lyon"}[q]


def run(tmp_path: Path, program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with record.ag2(tmp_path) as recorder:
        result = asyncio.run(program())
    assert not recorder.failures
    return result


def test_agents_as_tools_side_by_side_with_their_inner_events(tmp_path: Path) -> None:
    scout = agent(
        "scout",
        calls(("c1", "lookup", '{"q":"France"}')),
        says("Paris", 30, 2),
        tools=[lookup],
        prompt="Be short.",
    )
    other = agent("other", says("Lyon", 12, 1))
    asks = calls(
        ("k1", "task_scout", '{"objective":"capital?"}'), ("k2", "task_other", '{"objective":"second?"}')
    )
    lead = agent(
        "lead",
        asks,
        says("both", 44, 6),
        tools=[scout.as_tool(description="a"), other.as_tool(description="b")],
    )
    assert run(tmp_path, lambda: lead.ask("two cities")).body == "both"
    (trace,) = recorded(tmp_path)
    keep_golden(tmp_path, "ag2-1.2.1")
    told = story(trace)
    lead_told = told.pop("lead")
    assert sorted(lead_told[:2]) == [
        "spawns other: second?",
        "spawns scout: capital?",
    ]  # AG2 starts them as it likes
    assert lead_told[2:] == ["aggregates other, scout (inferred)", "decides to stop: both"]
    assert told == {
        "scout": ['uses lookup: {"q":"France"}', "gets lookup: Paris", "returns to lead: Paris"],
        "other": ["returns to lead: Lyon"],
    }
    assert spent(trace) == {"lead": [(20, 5), (44, 6)], "scout": [(20, 5), (30, 2)], "other": [(12, 1)]}
    ids = {event.to: event.extra["tool_call_id"] for event in trace.events if event.type == "spawn"}
    assert ids == {"scout": "k1", "other": "k2"}
    assert prompts(trace, "scout") == [
        '[{"speaker":"system","text":"Be short."},{"speaker":"user","text":"capital?"}]',
        '[{"speaker":"tool","text":"Paris"}]',
    ]
    assert trace.header.task_id == "two cities"


def test_a_chain_of_agents(tmp_path: Path) -> None:
    deep = agent("deep", says("bottom"))
    middle = agent(
        "middle",
        calls(("m", "task_deep", '{"objective":"down"}')),
        says("middle"),
        tools=[deep.as_tool(description="d")],
    )
    lead = agent(
        "lead",
        calls(("l", "task_middle", '{"objective":"go"}')),
        says("top"),
        tools=[middle.as_tool(description="m")],
    )
    run(tmp_path, lambda: lead.ask("dig"))
    (trace,) = recorded(tmp_path)
    assert story(trace) == {
        "lead": ["spawns middle: go", "decides to stop: top"],
        "middle": ["spawns deep: down", "returns to lead: middle"],
        "deep": ["returns to middle: bottom"],
    }
    assert edges(trace) == {
        "lead spawn -> middle spawn", "middle spawn -> deep return", "deep return -> middle return",
        "middle return -> lead orchestrator_decision",
    }  # fmt: skip


def test_an_agent_on_a_persistent_stream_is_one(tmp_path: Path) -> None:
    from ag2.tools.subagents import persistent_stream

    scout = agent("scout", says("one"))  # the test model begins anew with every question
    kept = scout.as_tool(description="a", stream=persistent_stream())
    fresh = agent("fresh", says("two")).as_tool(description="b")
    lead = agent(
        "lead",
        calls(("a", "task_scout", '{"objective":"1"}')), calls(("b", "task_scout", '{"objective":"2"}')),
        calls(("c", "task_fresh", '{"objective":"3"}')), calls(("d", "task_fresh", '{"objective":"4"}')), says("done"),
        tools=[kept, fresh],
    )  # fmt: skip
    run(tmp_path, lambda: lead.ask("four times"))
    (trace,) = recorded(tmp_path)
    assert story(trace) == {
        "lead": [
            "spawns scout: 1",
            "hands over to scout: 2",
            "spawns fresh: 3",
            "spawns fresh-2: 4",
            "decides to stop: done",
        ],
        "scout": ["returns to lead: one", "returns to lead: one"],
        "fresh": ["returns to lead: two"],
        "fresh-2": ["returns to lead: two"],
    }


def test_failures(tmp_path: Path) -> None:
    async def program() -> None:
        await agent("a", calls(("c", "lookup", '{"q":"nowhere"}')), says("sorry"), tools=[lookup]).ask("tool")
        with pytest.raises(RuntimeError, match="down"):
            await agent("b", RuntimeError("down")).ask("model")
        child = agent("child", RuntimeError("child is down"))
        lead = agent(
            "lead",
            calls(("k", "task_child", '{"objective":"x"}')),
            says("without it"),
            tools=[child.as_tool(description="c")],
        )
        await lead.ask("child")

    run(tmp_path, program)
    tool_fails, model_fails, child_fails = recorded(tmp_path)
    assert story(tool_fails) == {
        "a": [
            'uses lookup: {"q":"nowhere"}',
            "failed gets lookup: KeyError: 'nowhere'",
            "decides to stop: sorry",
        ]
    }
    assert story(model_fails)["b"][-1] == "failed decides to stop: RuntimeError: down"
    assert [call.finish_reason for call in model_fails.calls] == ["error"]
    assert story(child_fails)["lead"] == ["spawns child: x", "decides to stop: without it"]
    assert story(child_fails)["child"][-1] == "failed returns to lead: RuntimeError: child is down"
    assert spent(tool_fails) == {"a": [(20, 5), (None, None)]}


def test_parallel_runs_and_cancelling(tmp_path: Path) -> None:
    @tool
    async def slow(q: str) -> str:
        """Wait."""
        await asyncio.sleep(30)
        return ""

    async def program() -> None:
        names = ("anna", "bert", "cleo")
        await asyncio.gather(
            *(
                agent(name, calls(("c", "lookup", '{"q":"second"}')), says(name), tools=[lookup]).ask(name)
                for name in names
            )
        )
        task = asyncio.create_task(agent("late", calls(("c", "slow", '{"q":"x"}')), tools=[slow]).ask("wait"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(tmp_path, program)
    *three, late = recorded(tmp_path)
    assert sorted(map(str, map(story, three))) == [
        str({name: ['uses lookup: {"q":"second"}', "gets lookup: Lyon", f"decides to stop: {name}"]})
        for name in ("anna", "bert", "cleo")
    ]
    assert [line.partition(":")[0] for line in story(late)["late"]] == [
        "uses slow",
        "cancelled gets slow",
        "cancelled decides to stop",
    ]


def test_a_channel_of_the_network_is_one_conversation(tmp_path: Path) -> None:
    from ag2.knowledge import MemoryKnowledgeStore
    from ag2.network import Hub, HubClient, LocalLink

    closed = asyncio.Event()

    @tool
    async def enough() -> str:
        """End it."""
        closed.set()
        await asyncio.sleep(5)
        return "closed"

    async def program() -> None:
        hub = await Hub.open(MemoryKnowledgeStore())
        network = HubClient(LocalLink(hub))
        talkers = [
            agent("anna", calls(("e", "enough", "{}"))),
            agent("bert", says("I am bert", 9, 3)),
            agent("cleo", says("I am cleo")),
        ]
        talkers[0].tools = [enough]
        clients = [await network.register(each, attach_plugin=False) for each in talkers]
        channel = await clients[0].open(
            type="discussion", target=["bert", "cleo"], knobs={"ordering": "round_robin"}
        )
        await channel.send("introduce yourselves")
        await asyncio.wait_for(closed.wait(), 20)
        await channel.close("enough")
        await network.close()
        await hub.close()

    run(tmp_path, program)
    (trace,) = recorded(tmp_path)
    told = story(trace)
    assert trace.finished
    assert told["anna"][0] == "says to all: introduce yourselves"
    assert "decides to stop: enough" in told["anna"]
    assert told["bert"] == ["says to all: I am bert"]
    assert told["cleo"] == ["says to all: I am cleo"]
    assert {
        "anna message -> bert message",
        "anna message -> cleo message",
        "bert message -> cleo message",
    } <= edges(trace)
    assert spent(trace)["bert"] == [(9, 3)]
    assert trace.header.task_id == "introduce yourselves"


def test_everything_is_put_back(tmp_path: Path) -> None:
    before = Agent._turn_scope
    run(tmp_path, lambda: agent("a", says("x")).ask("t"))
    assert Agent._turn_scope is before
    asyncio.run(agent("a", says("unheard")).ask("t"))
    assert len(recorded(tmp_path)) == 1


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_page("ag2", tmp_path, monkeypatch, capsys)
