"""LangGraph 1.2.20, run offline with LangChain's own fake model; what is true was written down by hand."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from connect_story import check_page, edges, keep_golden, only_in, prompts, recorded, spent, story

only_in("langgraph")

from langchain.agents import create_agent  # noqa: E402
from langchain_core.language_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langgraph.checkpoint.memory import MemorySaver  # noqa: E402
from langgraph.graph import START, MessagesState, StateGraph  # noqa: E402
from langgraph.types import Command, RetryPolicy, Send, interrupt  # noqa: E402

from baton.connect import record  # noqa: E402


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def model(*answers: Any) -> Model:
    return Model(messages=iter(answers))


def says(text: str, prompt: int | None = None, completion: int | None = None) -> AIMessage:
    if prompt is None:
        return AIMessage(text)
    usage = {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + (completion or 0)}
    return AIMessage(
        text, usage_metadata=usage, response_metadata={"model_name": "fake-1", "finish_reason": "stop"}
    )


def calls(*wanted: tuple[str, str, dict[str, Any]]) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"id": id_, "name": name, "args": arguments} for id_, name, arguments in wanted]
    )


@tool
def lookup(q: str) -> str:
    """Look it up."""
    return {"France": "Paris", "second": "Lyon"}[q]


ASK = {"messages": [HumanMessage("capital?")]}


class State(TypedDict):
    task: str
    topics: list[str]
    found: Annotated[list[str], operator.add]
    answer: str


def fan_out(finder: Model, merger: Model) -> Any:
    def plan(state: State) -> Any:
        return {
            "topics": model(says("a,b,c", 11, 2)).invoke([HumanMessage(state["task"])]).content.split(",")
        }

    def each(state: State) -> Any:
        return [Send("worker", {"topic": topic}) for topic in state["topics"]]

    async def worker(state: Any) -> Any:
        return {"found": [str((await finder.ainvoke([HumanMessage(state["topic"])])).content)]}

    async def merge(state: State) -> Any:
        return {"answer": (await merger.ainvoke([HumanMessage(" ".join(state["found"]))])).content}

    graph = StateGraph(State)
    for node in (plan, worker, merge):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", each, ["worker"])
    graph.add_edge("worker", "merge")
    return graph.compile(name="lead")


def test_send_fans_out_and_the_join_is_inferred(tmp_path: Path) -> None:
    graph = fan_out(model(*(says("found", 5, 1) for _ in range(3))), model(says("all three", 20, 4)))

    async def run(recorder: Any) -> None:
        async for _ in graph.astream({"task": "cities"}, {"callbacks": [recorder]}):
            await asyncio.sleep(0)

    with record.langgraph(tmp_path) as recorder:
        asyncio.run(run(recorder))
    assert not recorder.failures
    (trace,) = recorded(tmp_path)
    keep_golden(tmp_path, "langgraph-1.2.20")
    told = story(trace)
    lead = told.pop("lead")
    assert lead[0] == "spawns plan"
    assert sorted(line.partition(": ")[2] for line in lead[1:4]) == [
        '{"topic": "a"}',
        '{"topic": "b"}',
        '{"topic": "c"}',
    ]
    assert lead[4] == "spawns merge"
    assert lead[5].startswith("decides to stop: ")
    assert told.pop("plan") == ['returns to lead: {"topics": ["a", "b", "c"]}']
    assert told.pop("merge") == [
        "aggregates worker, worker-2, worker-3: all three (inferred)",
        'returns to lead: {"answer": "all three"}',
    ]
    assert told == {
        name: ['returns to lead: {"found": ["found"]}'] for name in ("worker", "worker-2", "worker-3")
    }
    assert spent(trace) == {
        "plan": [(11, 2)],
        "worker": [(5, 1)],
        "worker-2": [(5, 1)],
        "worker-3": [(5, 1)],
        "merge": [(20, 4)],
    }
    assert {call.policy for call in trace.calls} == {"fake-1"}
    sent = [
        event
        for event in trace.events
        if event.type == "spawn" and event.to and event.to.startswith("worker")
    ]
    assert {event.extra["sent_by"] for event in sent} == {"plan"}
    assert all(event.inferred and event.why for event in trace.events if event.type == "aggregate")


def test_parallel_teams_do_not_mix(tmp_path: Path) -> None:
    graph = fan_out(model(*(says("found") for _ in range(60))), model(*(says("done") for _ in range(20))))

    async def run(recorder: Any) -> None:
        await asyncio.gather(
            *(graph.ainvoke({"task": f"task {n}"}, {"callbacks": [recorder]}) for n in range(5))
        )

    with record.langgraph(tmp_path) as recorder:
        asyncio.run(run(recorder))
    traces = recorded(tmp_path)
    assert [len(trace.events) for trace in traces] == [12] * 5
    assert sorted(str(trace.header.meta["connect"]["task"]) for trace in traces) == [
        f'{{"task": "task {n}"}}' for n in range(5)
    ]


def test_create_agent_is_one_agent(tmp_path: Path) -> None:
    scout = create_agent(model(calls(("c1", "lookup", {"q": "France"})), says("Paris")), [lookup], name="scout",
                         system_prompt="Be short.")  # fmt: skip
    with record.langgraph(tmp_path) as recorder:
        scout.invoke(ASK, {"callbacks": [recorder]})
    (trace,) = recorded(tmp_path)
    assert story(trace) == {
        "scout": ['uses lookup: {"q": "France"}', "gets lookup: Paris", "decides to stop: Paris"]
    }
    assert trace.header.task_id == "capital?"
    assert [event.extra.get("tool_call_id") for event in trace.events if event.type == "tool_call"] == ["c1"]
    assert prompts(trace, "scout") == [
        '[{"speaker":"system","text":"Be short."},{"speaker":"user","text":"capital?"}]',
        '[{"speaker":"tool","text":"Paris"}]',
    ]
    assert spent(trace) == {"scout": [(None, None), (None, None)]}


def test_agents_inside_tools_are_spawned(tmp_path: Path) -> None:
    @tool
    def ask(q: str) -> str:
        """Ask another."""
        other = create_agent(model(says(f"about {q}")), [], name="other")
        return str(other.invoke({"messages": [HumanMessage(q)]})["messages"][-1].content)

    lead = create_agent(
        model(calls(("k1", "ask", {"q": "x"}), ("k2", "ask", {"q": "y"})), says("both")), [ask], name="lead"
    )
    with record.langgraph(tmp_path) as recorder:
        lead.invoke(ASK, {"callbacks": [recorder]})
    (trace,) = recorded(tmp_path)
    told = story(trace)
    lead_told = told.pop("lead")
    assert sorted(line.partition(": ")[2] for line in lead_told[:2]) == ["x", "y"]
    assert lead_told[2:] == ["aggregates other, other-2 (inferred)", "decides to stop: both"]
    assert sorted(map(tuple, told.values())) == [("returns to lead: about x",), ("returns to lead: about y",)]
    spawned = {
        event.extra["tool_call_id"]: trace.text(event.content_ref)
        for event in trace.events
        if event.type == "spawn"
    }
    assert spawned == {"k1": "x", "k2": "y"}
    assert not any(event.type == "tool_call" for event in trace.events)


def test_a_subgraph_as_a_node_is_that_node(tmp_path: Path) -> None:
    scout = create_agent(
        model(calls(("c1", "lookup", {"q": "France"})), says("Paris")), [lookup], name="geographer"
    )
    graph = StateGraph(MessagesState)
    graph.add_node("scout", scout)
    graph.add_node("note", lambda state: {"messages": [AIMessage("noted")]})
    graph.add_edge(START, "scout")
    graph.add_edge("scout", "note")
    with record.langgraph(tmp_path) as recorder:
        graph.compile(name="top").invoke(ASK, {"callbacks": [recorder]})
    (trace,) = recorded(tmp_path)
    assert story(trace) == {
        "top": ["spawns scout", "spawns note", "decides to stop: noted"],
        "scout": ['uses lookup: {"q": "France"}', "gets lookup: Paris", "returns to top: Paris"],
        "note": ["returns to top: noted"],
    }
    assert edges(trace) == {
        "top spawn -> scout tool_call", "scout return -> top spawn", "top spawn -> note return",
        "note return -> top orchestrator_decision",
    }  # fmt: skip


def test_a_hand_written_loop_gives_tools_to_who_asked(tmp_path: Path) -> None:
    from langgraph.prebuilt import ToolNode, tools_condition

    brain = model(
        calls(("c1", "lookup", {"q": "France"})), calls(("c2", "lookup", {"q": "second"})), says("both")
    )
    graph = StateGraph(MessagesState)
    graph.add_node("chatbot", lambda state: {"messages": [brain.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "chatbot")
    graph.add_conditional_edges("chatbot", tools_condition)
    graph.add_edge("tools", "chatbot")
    with record.langgraph(tmp_path) as recorder:
        graph.compile().invoke(ASK, {"callbacks": [recorder]})
    (trace,) = recorded(tmp_path)
    told = story(trace)
    assert set(told) == {"LangGraph", "chatbot"}  # the node that ran the tools is nobody
    assert told["LangGraph"] == [
        "spawns chatbot",
        "hands over to chatbot",
        "hands over to chatbot",
        "decides to stop: both",
    ]
    assert [line for line in told["chatbot"] if "returns" not in line] == [
        'uses lookup: {"q": "France"}', "gets lookup: Paris", 'uses lookup: {"q": "second"}', "gets lookup: Lyon",
    ]  # fmt: skip


def test_a_swarm_hands_over(tmp_path: Path) -> None:
    @tool
    def to_bert() -> Any:
        """Hand over."""
        return Command(goto="bert", graph=Command.PARENT, update={"messages": [HumanMessage("over to bert")]})

    anna = create_agent(model(calls(("h1", "to_bert", {}))), [to_bert], name="anna")

    def bert(state: MessagesState) -> Command[Any]:
        return Command(goto="cleo", update={"messages": [model(says("not mine")).invoke(state["messages"])]})

    graph = StateGraph(MessagesState)
    graph.add_node("anna", anna, destinations=("bert",))
    graph.add_node("bert", bert, destinations=("cleo",))
    graph.add_node("cleo", lambda state: {"messages": [model(says("done")).invoke(state["messages"])]})
    graph.add_edge(START, "anna")
    with record.langgraph(tmp_path) as recorder:
        graph.compile(name="swarm").invoke(ASK, {"callbacks": [recorder]})
    (trace,) = recorded(tmp_path)
    assert story(trace) == {
        "swarm": ["spawns anna", "decides to stop: done"],
        "anna": ["hands over to bert: {}"],
        "bert": ["hands over to cleo: not mine"],
        "cleo": ["returns to swarm: done"],
    }
    assert edges(trace) == {
        "swarm spawn -> anna message", "anna message -> bert message", "bert message -> cleo return",
        "cleo return -> swarm orchestrator_decision",
    }  # fmt: skip


def test_failures_retries_and_cancelling(tmp_path: Path) -> None:
    @tool
    def broken(q: str) -> str:
        """Break."""
        raise ValueError(f"no {q}")

    tries = iter([RuntimeError("busy"), None])

    def flaky(state: State) -> Any:
        if error := next(tries):
            raise error
        return {"answer": "at last"}

    graph = StateGraph(State)
    graph.add_node(
        "flaky", flaky, retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.01, retry_on=RuntimeError)
    )
    graph.add_edge(START, "flaky")

    async def slow(state: State) -> Any:
        await asyncio.sleep(30)

    waiting = StateGraph(State)
    waiting.add_node("slow", slow)
    waiting.add_edge(START, "slow")

    async def cancelled(recorder: Any) -> None:
        task = asyncio.create_task(
            waiting.compile(name="late").ainvoke({"task": "x"}, {"callbacks": [recorder]})
        )
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with record.langgraph(tmp_path) as recorder:
        with pytest.raises(ValueError, match="no x"):
            create_agent(model(calls(("c", "broken", {"q": "x"}))), [broken], name="a").invoke(
                ASK, {"callbacks": [recorder]}
            )
        graph.compile(name="lead").invoke({"task": "x"}, {"callbacks": [recorder]})
        asyncio.run(cancelled(recorder))
    assert not recorder.failures
    tool_fails, retried, late = recorded(tmp_path)
    assert story(tool_fails) == {
        "a": [
            'uses broken: {"q": "x"}',
            "failed gets broken: ValueError: no x",
            "failed decides to stop: ValueError: no x",
        ]
    }
    assert story(retried)["flaky"][-1] == 'returns to lead: {"answer": "at last"}'
    assert story(late)["late"][-1].startswith("cancelled decides to stop")


def test_a_person_is_asked_and_the_run_goes_on(tmp_path: Path) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [AIMessage(f"you said {interrupt('sure?')}")]})
    graph.add_edge(START, "ask")
    made = graph.compile(checkpointer=MemorySaver(), name="careful")
    with record.langgraph(tmp_path) as recorder:
        config = {"callbacks": [recorder], "configurable": {"thread_id": "t1"}}
        made.invoke(ASK, config)
        made.invoke(Command(resume="yes"), config)
    (trace,) = recorded(tmp_path)
    told = story(trace)
    assert told["careful"] == [
        "spawns ask",
        "human_intervention: yes",
        "hands over to ask",
        "decides to stop: you said yes",
    ]
    assert told["ask"][0].startswith("decides to wait")
    assert told["ask"][1] == "returns to careful: you said yes"


def test_hooks_that_get_nonsense_do_not_break_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with record.langgraph(tmp_path) as recorder:
        recorder.on_llm_end(object(), run_id="never seen")
        recorder.on_chat_model_start(None, [], run_id="x")
        recorder.on_chat_model_start(None, [], run_id="x")
        create_agent(model(says("fine")), [], name="a").invoke(ASK, {"callbacks": [recorder]})
    assert sum(recorder.failures.values()) == 2
    assert capsys.readouterr().err.count("baton: the recorder failed") == 1
    assert recorder.report.skipped["the recorder failed in on_chat_model_start: IndexError"] == 2
    assert story(recorded(tmp_path)[-1]) == {"a": ["decides to stop: fine"]}


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_page("langgraph", tmp_path, monkeypatch, capsys)
