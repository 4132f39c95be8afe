"""autogen-agentchat 0.7.5, run offline with its replay client; what is true was written down by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from connect_story import check_page, edges, keep_golden, only_in, prompts, recorded, spent, story

only_in("autogen")

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent, UserProxyAgent  # noqa: E402
from autogen_agentchat.conditions import TextMentionTermination  # noqa: E402
from autogen_agentchat.teams import (  # noqa: E402
    DiGraphBuilder,
    GraphFlow,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)  # fmt: skip
from autogen_agentchat.tools import AgentTool, TeamTool  # noqa: E402
from autogen_core import FunctionCall  # noqa: E402
from autogen_core.models import CreateResult, RequestUsage  # noqa: E402
from autogen_ext.models.replay import ReplayChatCompletionClient  # noqa: E402

from baton.connect import record  # noqa: E402
from baton.errors import UsageError  # noqa: E402

INFO: Any = {
    "vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False,
    "multiple_system_messages": True,
}  # fmt: skip


def says(text: str, prompt: int = 10, completion: int = 3) -> CreateResult:
    usage = RequestUsage(prompt_tokens=prompt, completion_tokens=completion)
    return CreateResult(finish_reason="stop", content=text, usage=usage, cached=False)


def calls(*wanted: tuple[str, str, str]) -> CreateResult:
    content = [FunctionCall(id=id_, name=name, arguments=arguments) for id_, name, arguments in wanted]
    usage = RequestUsage(prompt_tokens=20, completion_tokens=5)
    return CreateResult(finish_reason="function_calls", content=content, usage=usage, cached=False)


def client(*answers: Any) -> Any:
    return ReplayChatCompletionClient(list(answers), model_info=INFO)


def agent(name: str, *answers: Any, **more: Any) -> AssistantAgent:
    return AssistantAgent(name, client(*answers), system_message=None, **more)


async def lookup(q: str) -> str:
    """Look it up."""
    return {"France": "Paris", "second": "Lyon"}[q]


def run(tmp_path: Path, program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    with record.autogen(tmp_path) as recorder:
        result = asyncio.run(program())
    assert not recorder.failures
    return result


def test_a_swarm_hands_over_and_keeps_its_agents(tmp_path: Path) -> None:
    lead = agent("lead", calls(("c1", "transfer_to_scout", "{}")), says("bye END", 31, 2), handoffs=["scout"])
    scout = agent("scout", calls(("c2", "lookup", '{"q":"France"}')), calls(("c3", "transfer_to_lead", "{}")),
                  tools=[lookup], handoffs=["lead"])  # fmt: skip
    team = Swarm([lead, scout], termination_condition=TextMentionTermination("END"))
    run(tmp_path, lambda: team.run(task="capital?"))
    (trace,) = recorded(tmp_path)
    keep_golden(tmp_path, "autogen-agentchat-0.7.5")
    over = "Transferred to {0}, adopting the role of {0} immediately."
    assert story(trace) == {
        "SwarmGroupChatManager": [
            "decides to delegate to lead: lead", "decides to delegate to scout: scout",
            "decides to delegate to scout: scout", "decides to delegate to lead: lead", "decides to stop: bye END",
        ],
        "lead": [f"hands over to scout: {over.format('scout')}", "says to all: bye END"],
        "scout": [
            'uses lookup: {"q":"France"}', "gets lookup: Paris", "says to all: Paris",
            f"hands over to lead: {over.format('lead')}",
        ],
    }  # fmt: skip
    assert spent(trace) == {"lead": [(20, 5), (31, 2)], "scout": [(20, 5), (20, 5)]}
    assert trace.header.task_id == "capital?"
    assert [event.extra["stop_reason"] for event in trace.events if event.decision == "stop"] == [
        "Text 'END' mentioned"
    ]


def test_agents_and_teams_as_tools_are_spawned(tmp_path: Path) -> None:
    scout = agent(
        "scout",
        calls(("d1", "lookup", '{"q":"nowhere"}')),
        says("sorry"),
        tools=[lookup],
        reflect_on_tool_use=True,
    )
    pair = RoundRobinGroupChat([agent("x", says("x1")), agent("y", says("y1"))], max_turns=2)
    boss = agent("boss", calls(("k1", "scout", '{"task":"capital"}'), ("k2", "pair", '{"task":"talk"}')), says("both"),
                 tools=[AgentTool(scout), TeamTool(pair, "pair", "two")], reflect_on_tool_use=True)  # fmt: skip
    run(tmp_path, lambda: boss.run(task="go"))
    (trace,) = recorded(tmp_path)
    told = story(trace)
    assert told["boss"] == [
        "spawns scout: capital", "spawns RoundRobinGroupChatManager: talk",
        "aggregates RoundRobinGroupChatManager, scout (inferred)", "decides to stop: both",
    ]  # fmt: skip
    assert [line.partition(":")[0] for line in told["scout"]] == [
        "uses lookup",
        "failed gets lookup",
        "returns to boss",
    ]
    assert told["RoundRobinGroupChatManager"][:2] == [
        "decides to delegate to x: x",
        "decides to delegate to y: y",
    ]
    assert told["RoundRobinGroupChatManager"][2].startswith("returns to boss")
    assert told["x"] == ["says to all: x1"]
    ids = {event.to: event.extra["tool_call_id"] for event in trace.events if event.type == "spawn"}
    assert ids == {"scout": "k1", "RoundRobinGroupChatManager": "k2"}


def test_a_selector_decides_by_its_model(tmp_path: Path) -> None:
    members = [agent(name, says(f"I am {name}"), description=name) for name in ("anna", "bert", "cleo")]
    team = SelectorGroupChat(members, client(says("cleo", 54, 1), says("anna", 60, 1)), max_turns=2)

    async def program() -> list[Any]:
        return [message async for message in team.run_stream(task="introduce yourselves")]

    shown = run(tmp_path, program)
    assert [getattr(message, "source", None) for message in shown] == [
        "user",
        "cleo",
        "anna",
        None,
    ]  # as without us
    (trace,) = recorded(tmp_path)
    assert story(trace) == {
        "SelectorGroupChatManager": [
            "decides to delegate to cleo: cleo", "decides to delegate to anna: anna", "decides to stop: I am anna",
        ],
        "cleo": ["says to all: I am cleo"],
        "anna": ["says to all: I am anna"],
    }  # fmt: skip
    assert spent(trace)["SelectorGroupChatManager"] == [(54, 1), (60, 1)]
    said = {event.call for event in trace.events if event.decision == "delegate"}
    assert len(said) == 2
    assert None not in said
    assert "cleo message -> anna message" in edges(trace)
    assert '"text":"I am cleo"' in prompts(trace, "anna")[0]


def test_a_graph_runs_side_by_side_and_joins(tmp_path: Path) -> None:
    start, left, right, end = (
        agent(name, says(f"{name} done")) for name in ("start", "left", "right", "end")
    )
    builder = DiGraphBuilder()
    for node in (start, left, right, end):
        builder.add_node(node)
    builder.add_edge(start, left).add_edge(start, right).add_edge(left, end).add_edge(right, end)
    run(tmp_path, lambda: GraphFlow([start, left, right, end], graph=builder.build()).run(task="flow"))
    (trace,) = recorded(tmp_path)
    told = story(trace)
    assert told["end"][0] == "says to all: end done"
    assert {f"{side} message -> end message" for side in ("left", "right")} <= edges(trace)
    assert [line for line in told["GraphManager"] if "left" in line or "right" in line] == [
        "decides to delegate to left: left", "decides to delegate to right: right",
    ]  # fmt: skip


def test_a_team_in_a_team_and_a_society(tmp_path: Path) -> None:
    inner = RoundRobinGroupChat([agent("x", says("x1")), agent("y", says("y1"))], max_turns=2, name="inner")
    deep = RoundRobinGroupChat([agent("w", says("w1"))], max_turns=1)
    society = SocietyOfMindAgent("society", deep, client(says("we say w1")))
    outer = RoundRobinGroupChat([agent("z", says("z1")), inner, society], max_turns=3)
    run(tmp_path, lambda: outer.run(task="deep"))
    (trace,) = recorded(tmp_path)
    told = story(trace)
    assert told["inner"] == [
        "decides to delegate to x: x",
        "decides to delegate to y: y",
        "returns to RoundRobinGroupChatManager: y1",
    ]
    assert told["society"][0].startswith("spawns RoundRobinGroupChatManager-2")
    assert told["society"][-1] == "says to all: we say w1"
    assert told["w"] == ["says to all: w1"]
    assert sum(len(lines) for lines in told.values()) == len(trace.events)


def test_a_person_takes_part(tmp_path: Path) -> None:
    person = UserProxyAgent("person", input_func=lambda prompt: "go on END")
    team = RoundRobinGroupChat(
        [agent("a", says("may I?")), person], termination_condition=TextMentionTermination("END")
    )
    run(tmp_path, lambda: team.run(task="ask"))
    (trace,) = recorded(tmp_path)
    assert story(trace)["person"][-1] == "human_intervention: go on END"


def test_failures_and_cancelling(tmp_path: Path) -> None:
    async def slow(q: str) -> str:
        """Wait."""
        await asyncio.sleep(30)
        return ""

    async def program() -> None:
        with pytest.raises(RuntimeError, match="No more mock responses"):
            await RoundRobinGroupChat([agent("z")], max_turns=2).run(task="fail")
        task = asyncio.create_task(
            agent("s", calls(("c", "slow", '{"q":"x"}')), tools=[slow]).run(task="wait")
        )
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(tmp_path, program)
    failed, cancelled = recorded(tmp_path)
    assert story(failed)["RoundRobinGroupChatManager"][-1].startswith("failed decides to stop: RuntimeError")
    assert [call.finish_reason for call in failed.calls] == ["error"]
    assert story(cancelled)["s"][0] == 'uses slow: {"q":"x"}'
    assert story(cancelled)["s"][-1].startswith("cancelled decides to stop")


def test_parallel_teams_do_not_mix_and_streams_count_once(tmp_path: Path) -> None:
    async def one(name: str) -> None:
        team = RoundRobinGroupChat(
            [
                agent(name, says(f"{name} one"), model_client_stream=True),
                agent(f"{name}2", says(f"{name} two")),
            ],
            max_turns=2,
        )
        async for _ in team.run_stream(task=name):
            await asyncio.sleep(0)

    async def program() -> None:
        await asyncio.gather(*(one(name) for name in ("anna", "bert", "cleo")))

    run(tmp_path, program)
    traces = recorded(tmp_path)
    assert sorted(trace.header.task_id for trace in traces) == ["anna", "bert", "cleo"]
    for trace in traces:
        name = trace.header.task_id
        told = story(trace)
        assert (told[name], told[f"{name}2"]) == ([f"says to all: {name} one"], [f"says to all: {name} two"])
        assert len(trace.calls) == 2


def test_everything_is_put_back(tmp_path: Path) -> None:
    before = (RoundRobinGroupChat.run_stream, AssistantAgent.run, ReplayChatCompletionClient.create)
    with record.autogen(tmp_path / "a") as recorder:
        with pytest.raises(UsageError, match="open already"), record.autogen(tmp_path / "b"):
            pass
        asyncio.run(agent("a", says("x")).run(task="t"))
    assert not recorder.failures
    assert (RoundRobinGroupChat.run_stream, AssistantAgent.run, ReplayChatCompletionClient.create) == before
    asyncio.run(agent("a", says("unheard")).run(task="t"))
    assert len(recorded(tmp_path / "a")) == 1


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_page("autogen", tmp_path, monkeypatch, capsys)
