"""google-adk 2.13, run offline with a scripted model of its own base class; what is true was written down by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from connect_story import check_page, edges, keep_golden, only_in, prompts, recorded, spent, story

only_in("adk")

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent  # noqa: E402
from google.adk.agents.run_config import RunConfig, StreamingMode  # noqa: E402
from google.adk.models.base_llm import BaseLlm  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.adk.tools.agent_tool import AgentTool  # noqa: E402
from google.genai import types  # noqa: E402

from baton.connect import record  # noqa: E402


class Scripted(BaseLlm):
    """Answers from a list: text, tool calls, or an exception. With streaming, a text comes in two parts first."""

    answers: list[Any] = []  # noqa: RUF012 -- a pydantic field

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        parts = [types.Part(text=answer)] if isinstance(answer, str) else [
            types.Part(function_call=types.FunctionCall(name=name, args=arguments)) for name, arguments in answer
        ]  # fmt: skip
        if stream and isinstance(answer, str):
            for half in (answer[:2], answer[2:]):
                yield LlmResponse(
                    content=types.Content(role="model", parts=[types.Part(text=half)]), partial=True
                )
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=10 * len(llm_request.contents),
            candidates_token_count=3,
            thoughts_token_count=4,
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)


def agent(name: str, *answers: Any, **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model=Scripted(model="fake", answers=list(answers)), **more)


def lookup(q: str) -> str:
    """Look it up."""
    return {"France": "Paris", "second": "Lyon"}[q]


async def ask(plugin: Any, root: Any, text: str, **more: Any) -> list[Any]:
    runner = InMemoryRunner(agent=root, app_name="app", plugins=[plugin])
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=text)])
    events = [
        event
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message, **more)
    ]
    await runner.close()
    return events


def run(tmp_path: Path, root: Any, text: str = "go", **more: Any) -> Any:
    with record.adk(tmp_path) as recorder:
        asyncio.run(ask(recorder, root, text, **more))
    assert not recorder.recorder.failures
    (trace,) = recorded(tmp_path)
    return trace


def test_a_transfer_passes_control_to_a_sibling(tmp_path: Path) -> None:
    scout = agent("scout", [("lookup", {"q": "France"})], "Paris", tools=[lookup])
    lead = agent("lead", [("transfer_to_agent", {"agent_name": "scout"})], sub_agents=[scout])
    trace = run(tmp_path, lead, "capital?")
    assert story(trace) == {
        "lead": ['hands over to scout: {"agent_name": "scout"}'],
        "scout": ['uses lookup: {"q": "France"}', "gets lookup: Paris", "decides to stop: Paris"],
    }
    assert edges(trace) == {"lead message -> scout tool_call"}
    assert trace.header.task_id == "capital?"
    assert spent(trace)["lead"] == [(10, 7)]  # what it thought is billed as well
    assert len(spent(trace)["scout"]) == 2
    ids = [event.extra["tool_call_id"] for event in trace.events if event.type in ("message", "tool_call")]
    assert all(id_.startswith("adk-") for id_ in ids)
    assert len(set(ids)) == 2


def test_agent_tools_are_spawned_with_all_that_they_do(tmp_path: Path) -> None:
    scout = agent("scout", [("lookup", {"q": "France"})], "Paris", tools=[lookup])
    other = agent("other", "Lyon")
    asks = [("scout", {"request": "capital?"}), ("other", {"request": "second?"})]
    boss = agent("boss", asks, "both", tools=[AgentTool(scout), AgentTool(other)])
    trace = run(tmp_path, boss)
    keep_golden(tmp_path, "google-adk-2.13.0")
    assert story(trace) == {
        "boss": [
            "spawns scout: capital?", "spawns other: second?", "aggregates other, scout (inferred)",
            "decides to stop: both",
        ],
        "scout": ['uses lookup: {"q": "France"}', "gets lookup: Paris", "returns to boss: Paris"],
        "other": ["returns to boss: Lyon"],
    }  # fmt: skip
    assert [event.tool for event in trace.events if event.type == "spawn"] == ["scout", "other"]
    assert prompts(trace, "scout")[1] == '[{"speaker":"tool","text":"{\'result\': \'Paris\'}"}]'


def test_an_agent_tool_with_a_team_of_its_own(tmp_path: Path) -> None:
    expert = agent("expert", "deep")
    scout = agent("scout", [("transfer_to_agent", {"agent_name": "expert"})], sub_agents=[expert])
    trace = run(tmp_path, agent("boss", [("scout", {"request": "a"})], "done", tools=[AgentTool(scout)]))
    assert story(trace) == {
        "boss": ["spawns scout: a", "decides to stop: done"],
        "scout": ['hands over to expert: {"agent_name": "expert"}'],
        "expert": ["returns to boss: deep"],
    }


def test_workflows_spawn_and_join(tmp_path: Path) -> None:
    side_by_side = ParallelAgent(
        name="both", sub_agents=[agent("left", "l", output_key="l"), agent("right", "r", output_key="r")]
    )
    trace = run(tmp_path, SequentialAgent(name="line", sub_agents=[side_by_side, agent("merger", "l+r")]))
    told = story(trace)
    assert told.pop("line") == ["spawns both", "spawns merger", "decides to stop: l+r"]
    both = told.pop("both")
    assert sorted(both[:2]) == ["spawns left", "spawns right"]
    assert both[2:] == ["aggregates left, right (inferred)", "returns to line"]
    assert told == {
        "left": ["returns to both: l"], "right": ["returns to both: r"], "merger": ["returns to line: l+r"],
    }  # fmt: skip


def test_a_loop_keeps_its_agent(tmp_path: Path) -> None:
    trace = run(
        tmp_path,
        LoopAgent(name="loop", max_iterations=3, sub_agents=[agent("worker", "one", "two", "three")]),
    )
    assert story(trace) == {
        "loop": ["spawns worker", "hands over to worker", "hands over to worker", "decides to stop: three"],
        "worker": ["returns to loop: one", "returns to loop: two", "returns to loop: three"],
    }


def test_a_stream_counts_once(tmp_path: Path) -> None:
    trace = run(tmp_path, agent("lead", "Paris"), run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert story(trace) == {"lead": ["decides to stop: Paris"]}
    assert spent(trace) == {"lead": [(10, 7)]}


def test_failures_are_recorded_and_raised(tmp_path: Path) -> None:
    with record.adk(tmp_path) as recorder:
        with pytest.raises(KeyError):
            asyncio.run(ask(recorder, agent("a", [("lookup", {"q": "nowhere"})], tools=[lookup]), "go"))
        with pytest.raises(RuntimeError, match="down"):
            asyncio.run(ask(recorder, agent("b", RuntimeError("down")), "go"))
    assert not recorder.recorder.failures
    tool, model = recorded(tmp_path)
    assert [line.partition(":")[0] for line in story(tool)["a"]] == [
        "uses lookup",
        "failed gets lookup",
        "failed decides to stop",
    ]
    assert story(model)["b"][-1] == "failed decides to stop: RuntimeError: down"
    assert [call.finish_reason for call in model.calls] == ["error"]


def test_parallel_runs_do_not_mix(tmp_path: Path) -> None:
    async def program(recorder: Any) -> None:
        await asyncio.gather(
            *(
                ask(recorder, agent(name, [("lookup", {"q": "second"})], name, tools=[lookup]), name)
                for name in ("anna", "bert", "cleo")
            )
        )

    with record.adk(tmp_path) as recorder:
        asyncio.run(program(recorder))
    assert sorted(map(str, map(story, recorded(tmp_path)))) == [
        str({name: ['uses lookup: {"q": "second"}', "gets lookup: Lyon", f"decides to stop: {name}"]})
        for name in ("anna", "bert", "cleo")
    ]


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_page("adk", tmp_path, monkeypatch, capsys)
