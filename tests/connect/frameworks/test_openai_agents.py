"""openai-agents 0.24, run offline with its own scripted model; what is true was written down by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from connect_story import check_page, edges, keep_golden, only_in, prompts, recorded, spent, story

only_in("openai_agents")

from agents import (  # noqa: E402
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunHooks,
    Runner,
    function_tool,
    set_trace_processors,
    trace,
)  # fmt: skip
from agents.items import ModelResponse  # noqa: E402
from agents.testing import ScriptedModel, assistant_message, function_call  # noqa: E402
from agents.usage import Usage  # noqa: E402

from baton.connect import record  # noqa: E402

set_trace_processors([])  # the SDK's own exporter goes away


@function_tool
def lookup(q: str) -> str:
    """Look it up."""
    return {"France": "Paris", "second": "Lyon"}[q]


def says(text: str, *tokens: int) -> Any:
    return _answer([assistant_message(text)], tokens)


def calls(*wanted: tuple[str, str, str], tokens: tuple[int, ...] = ()) -> Any:
    return _answer([function_call(name, arguments, call_id=id_) for id_, name, arguments in wanted], tokens)


def _answer(output: list[Any], tokens: tuple[int, ...]) -> Any:
    if not tokens:
        return output
    usage = Usage(requests=1, input_tokens=tokens[0], output_tokens=tokens[1], total_tokens=sum(tokens))
    return ModelResponse(output=output, usage=usage, response_id=None)


def agent(name: str, *answers: Any, **more: Any) -> Agent[Any]:
    return Agent(name=name, model=ScriptedModel(list(answers)), **more)


def test_a_handoff_passes_control_to_a_sibling(tmp_path: Path) -> None:
    scout = agent(
        "scout",
        calls(("c2", "lookup", '{"q":"France"}'), tokens=(40, 7)),
        says("Paris", 55, 2),
        tools=[lookup],
    )
    lead = agent(
        "lead",
        calls(("c1", "transfer_to_scout", "{}"), tokens=(11, 3)),
        handoffs=[scout],
        instructions="Be short.",
    )
    with record.openai_agents(tmp_path):
        assert Runner.run_sync(lead, "capital of France?").final_output == "Paris"
    (trace_,) = recorded(tmp_path)
    keep_golden(tmp_path, "openai-agents-0.24.0")
    assert story(trace_) == {
        "lead": ["hands over to scout"],
        "scout": ['uses lookup: {"q":"France"}', "gets lookup: Paris", "decides to stop: Paris"],
    }
    assert spent(trace_) == {"lead": [(11, 3)], "scout": [(40, 7), (55, 2)]}
    assert edges(trace_) == {"lead message -> scout tool_call"}
    assert trace_.header.system == "openai-agents 0.24.0"
    assert trace_.header.task_id == "capital of France?"
    assert trace_.finished
    assert [event.extra.get("tool_call_id") for event in trace_.events if event.tool] == ["c2", None]
    assert prompts(trace_, "lead") == [
        '[{"speaker":"system","text":"Be short."},{"speaker":"user","text":"capital of France?"}]'
    ]
    assert prompts(trace_, "scout")[1] == '[{"speaker":"tool","text":"Paris"}]'


def test_agents_as_tools_are_spawned_and_return(tmp_path: Path) -> None:
    scout = agent("scout", calls(("c", "lookup", '{"q":"France"}')), says("Paris"), tools=[lookup])
    other = agent("other", says("Lyon"))
    asks = calls(("k1", "ask_scout", '{"input":"capital?"}'), ("k2", "ask_other", '{"input":"second?"}'))
    lead = agent(
        "lead",
        asks,
        says("Paris and Lyon"),
        tools=[scout.as_tool("ask_scout", "a"), other.as_tool("ask_other", "b")],
    )
    with record.openai_agents(tmp_path):
        Runner.run_sync(lead, "two cities")
    (trace_,) = recorded(tmp_path)
    told = story(trace_)
    assert told.pop("lead") == [
        'spawns scout: {"input":"capital?"}',
        'spawns other: {"input":"second?"}',
        "aggregates other, scout (inferred)",
        "decides to stop: Paris and Lyon",
    ]
    assert told == {
        "scout": ['uses lookup: {"q":"France"}', "gets lookup: Paris", "returns to lead: Paris"],
        "other": ["returns to lead: Lyon"],
    }
    ids = {event.to: event.extra["tool_call_id"] for event in trace_.events if event.type == "spawn"}
    assert ids == {"scout": "k1", "other": "k2"}
    assert spent(trace_)["lead"] == [(None, None), (None, None)]  # nobody counted


def test_two_calls_of_one_agent_tool_are_two_lives(tmp_path: Path) -> None:
    scout = agent("scout", says("one"), says("two"))
    lead = agent("lead", calls(("a", "ask", '{"input":"1"}')), calls(("b", "ask", '{"input":"2"}')), says("done"),
                 tools=[scout.as_tool("ask", "x")])  # fmt: skip
    with record.openai_agents(tmp_path):
        Runner.run_sync(lead, "twice")
    (trace_,) = recorded(tmp_path)
    assert story(trace_) == {
        "lead": ['spawns scout: {"input":"1"}', 'spawns scout-2: {"input":"2"}', "decides to stop: done"],
        "scout": ["returns to lead: one"],
        "scout-2": ["returns to lead: two"],
    }


def test_a_handoff_inside_an_agent_tool_returns_from_who_is_in_control(tmp_path: Path) -> None:
    expert = agent("expert", says("deep"))
    scout = agent("scout", calls(("h", "transfer_to_expert", "{}")), handoffs=[expert])
    lead = agent(
        "lead", calls(("a", "ask", '{"input":"1"}')), says("done"), tools=[scout.as_tool("ask", "x")]
    )
    with record.openai_agents(tmp_path):
        Runner.run_sync(lead, "go")
    (trace_,) = recorded(tmp_path)
    assert story(trace_) == {
        "lead": ['spawns scout: {"input":"1"}', "decides to stop: done"],
        "scout": ["hands over to expert"],
        "expert": ["returns to lead: deep"],
    }


def test_several_runs_in_one_trace_keep_their_agents(tmp_path: Path) -> None:
    lead = agent("lead", says("one"), says("two"))
    with record.openai_agents(tmp_path), trace("a workflow"):
        first = Runner.run_sync(lead, "first")
        Runner.run_sync(lead, [*first.to_input_list(), {"role": "user", "content": "second"}])
    (trace_,) = recorded(tmp_path)
    assert story(trace_) == {"lead": ["says to all: one", "decides to stop: two"]}
    assert prompts(trace_, "lead")[1] == '[{"speaker":"user","text":"second"}]'


def test_failures_are_recorded_and_raised(tmp_path: Path) -> None:
    @function_tool(failure_error_function=None)
    def broken(q: str) -> str:
        """Break."""
        raise ValueError(f"no {q}")

    with record.openai_agents(tmp_path) as recorder:
        with pytest.raises(Exception, match="no x"):
            Runner.run_sync(agent("a", calls(("c", "broken", '{"q":"x"}')), tools=[broken]), "use it")
        with pytest.raises(RuntimeError, match="model is down"):
            Runner.run_sync(agent("b", RuntimeError("model is down")), "ask it")
    assert not recorder.failures
    tool, model = recorded(tmp_path)
    assert [line.split(":")[0] for line in story(tool)["a"]] == [
        "uses broken",
        "failed gets broken",
        "failed decides to stop",
    ]
    assert story(model)["b"][-1].startswith("failed decides to stop")
    assert [call.finish_reason for call in model.calls] == ["error"]


def test_a_tool_that_raises_and_is_forgiven_failed(tmp_path: Path) -> None:
    @function_tool
    def broken(q: str) -> str:
        """Break."""
        raise ValueError("no")

    with record.openai_agents(tmp_path):
        Runner.run_sync(
            agent("a", calls(("c", "broken", '{"q":"x"}')), says("sorry"), tools=[broken]), "use it"
        )
    (trace_,) = recorded(tmp_path)
    assert [line.split(":")[0] for line in story(trace_)["a"]] == [
        "uses broken",
        "failed gets broken",
        "decides to stop",
    ]


def test_streams_and_parallel_runs_do_not_mix_and_hooks_stay(tmp_path: Path) -> None:
    heard: list[str] = []

    class Mine(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            heard.append(agent.name)

    async def one(name: str) -> None:
        who = agent(name, calls(("c", "lookup", '{"q":"second"}')), says(name), tools=[lookup])
        result = Runner.run_streamed(who, name, hooks=Mine())
        async for _ in result.stream_events():
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(*(one(name) for name in ("anna", "bert", "cleo")))

    with record.openai_agents(tmp_path):
        asyncio.run(both())
    stories = {tuple(told): told for told in map(story, recorded(tmp_path))}
    assert stories == {
        (name,): {name: ['uses lookup: {"q":"second"}', "gets lookup: Lyon", f"decides to stop: {name}"]}
        for name in ("anna", "bert", "cleo")
    }
    assert sorted(heard) == ["anna", "anna", "bert", "bert", "cleo", "cleo"]


def test_a_guardrail_is_a_safety_event(tmp_path: Path) -> None:
    async def check(context: Any, agent: Any, text: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    guarded = agent("lead", says("never"), input_guardrails=[InputGuardrail(guardrail_function=check)])
    with record.openai_agents(tmp_path), pytest.raises(Exception, match=r"(?i)tripwire"):
        Runner.run_sync(guarded, "hack it")
    (trace_,) = recorded(tmp_path)
    assert "safety_event: guardrail check was triggered" in story(trace_)["lead"]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    from agents.run import get_default_agent_runner

    before = get_default_agent_runner()
    with record.openai_agents(tmp_path / "a"):
        pass
    assert get_default_agent_runner() is before
    Runner.run_sync(agent("lead", says("x")), "unheard")
    assert recorded(tmp_path / "a") == []


def test_without_payloads_nothing_said_is_written(tmp_path: Path) -> None:
    with record.openai_agents(tmp_path, payloads=False):
        Runner.run_sync(
            agent("lead", calls(("c", "lookup", '{"q":"France"}')), says("Paris"), tools=[lookup]), "hush"
        )
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Paris" not in written
    assert b"hush" not in written
    assert b"France" not in written


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_page("openai-agents", tmp_path, monkeypatch, capsys)
