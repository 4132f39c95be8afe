"""strands 1.62, run offline with a scripted model and received over OTLP; what is true was written down by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connect_receiver import page_is_true, received, receiving, tokens
from connect_story import only_in, story

only_in("strands")

from opentelemetry import trace as otel  # noqa: E402
from strands import Agent, tool  # noqa: E402
from strands.models import Model  # noqa: E402
from strands.multiagent import GraphBuilder, Swarm  # noqa: E402

Says = Callable[[Any], Any]


class Scripted(Model):
    """Ten tokens for each message it is told, three for an answer."""

    def __init__(self, says: Says) -> None:
        self.says = says

    def get_config(self) -> Any:
        return {"model_id": "scripted"}

    def update_config(self, **_: Any) -> None: ...

    async def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        said = self.says(messages)
        yield {"messageStart": {"role": "assistant"}}
        for id_, name, arguments in said if isinstance(said, list) else []:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": id_, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        if isinstance(said, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(said, str) else "tool_use"}}
        told = 10 * len(messages)
        usage = {"inputTokens": told, "outputTokens": 3, "totalTokens": told + 3}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def results(messages: Any) -> list[str]:
    blocks = [block for message in messages for block in message["content"]]
    return [block["toolResult"]["content"][0]["text"] for block in blocks if "toolResult" in block]


def agent(name: str, says: Says, *tools: Any) -> Agent:
    return Agent(name=name, model=Scripted(says), tools=list(tools), callback_handler=None)


@tool
def lookup(key: str) -> str:
    """Look it up."""
    return f"found {key}"


def asks_then(answer: str) -> Says:
    def says(messages: Any) -> Any:
        asked = "toolResult" in str(messages[-1]["content"])
        return answer if asked else [(f"s{len(messages)}", "lookup", {"key": f"k{len(messages)}"})]

    return says


def test_everything_in_one_program(tmp_path: Path) -> None:
    """An agent as a tool, used twice and remembering; one that is made anew; a swarm; a graph with a fan-in."""
    with receiving(tmp_path) as provider:
        otel.set_tracer_provider(provider)
        scout = agent("scout", asks_then("it is there"), lookup)

        @tool
        def ask_scout(q: str) -> str:
            """Ask the scout."""
            return str(scout(q))

        @tool
        def ask_new(q: str) -> str:
            """Ask somebody new."""
            return str(agent("novice", lambda messages: "I guess so")(q))

        turns = iter(
            [
                [("l1", "ask_scout", {"q": "first?"})],
                [("l2", "ask_scout", {"q": "second?"}), ("l3", "ask_new", {"q": "third?"})],
                "done",
            ]
        )
        lead = agent("lead", lambda messages: next(turns), ask_scout, ask_new)
        answer = lead("Where?")
        told = answer.metrics.accumulated_usage["totalTokens"]
        told += scout.event_loop_metrics.accumulated_usage["totalTokens"] + 13
        a = agent(
            "a",
            lambda m: (
                "ok" if results(m) else [("h", "handoff_to_agent", {"agent_name": "b", "message": "yours"})]
            ),
        )
        Swarm([a, agent("b", lambda messages: "b did it")])("go")
        graph = GraphBuilder()
        for name in ("start", "p1", "p2", "end"):
            graph.add_node(agent(name, lambda messages, name=name: f"{name} done"), name)
        for edge in (("start", "p1"), ("start", "p2"), ("p1", "end"), ("p2", "end")):
            graph.add_edge(*edge)
        graph.set_entry_point("start")
        graph.set_execution_timeout(60)
        graph.build()("work")
    found = received(tmp_path)
    team, swarm, work = found["Where?"], found["go"], found["work"]
    _check_team(story(team))
    assert tokens(team) == told
    assert story(swarm) == {
        "a": ["hands over to b: yours", "decides to continue"],
        "b": ["decides to stop: b did it\n"],
    }
    assert swarm.header.task_id == "go"
    assert tokens(swarm) == (10 + 3) + (30 + 3) + (10 + 3)
    first, *both, last, stop = [line.split(":")[0] for line in story(work)["invoke_graph"]]
    assert (first, last, stop) == ("spawns start", "spawns end", "decides to stop")
    assert sorted(both) == ["spawns p1", "spawns p2"]  # side by side: either may be first
    assert story(work)["p2"] == ["returns to invoke_graph: p2 done\n"]
    assert tokens(work) == 4 * 13


def _check_team(told: dict[str, list[str]]) -> None:
    assert set(told) == {"lead", "scout", "novice"}
    assert told["lead"][0] == "spawns scout: first?"
    assert sorted(told["lead"][1:3]) == ["hands over to scout: second? (inferred)", "spawns novice: third?"]
    assert told["lead"][-1] == "decides to stop: done\n"
    assert told["novice"] == ["returns to lead: I guess so\n"]
    assert told["scout"] == [
        'uses lookup: {"key": "k1"}',
        "gets lookup: found k1",
        "returns to lead: it is there\n",
        'uses lookup: {"key": "k5"}',
        "gets lookup: found k5",
        "returns to lead: it is there\n",
    ]


def test_the_page(tmp_path: Path) -> None:
    page_is_true("strands.md", tmp_path)
