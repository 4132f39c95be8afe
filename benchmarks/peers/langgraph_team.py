"""LangGraph: Send fans out to worker subgraphs, each a loop of a model node and a tool node."""

from __future__ import annotations

import itertools
import operator
import sqlite3
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send


class Worker(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    left: int


class Main(TypedDict):
    results: Annotated[list[str], operator.add]


def ask(_: int) -> AIMessage:
    return AIMessage(content="", tool_calls=[{"name": "look", "args": {"q": 1}, "id": "c"}])


def bare_worker() -> Any:
    """Nodes that do nothing but count: the framework alone, no model."""

    def model(state: Worker) -> dict[str, Any]:
        return {"left": state["left"] - 1}

    return _worker(model, lambda _: {})


def chat_worker() -> Any:
    """A fake chat model and a tool, with the message history that agents keep."""
    fake = GenericFakeChatModel(messages=map(ask, itertools.count()))

    def model(state: Worker) -> dict[str, Any]:
        return {"messages": [fake.invoke(state["messages"])], "left": state["left"] - 1}

    return _worker(model, lambda _: {"messages": [ToolMessage("ok", tool_call_id="c")]})


def _worker(model: Any, tool: Any) -> Any:
    graph = StateGraph(Worker)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tool" if state["left"] > 0 else END)
    graph.add_edge("tool", "model")
    return graph


def run(num_agents: int, num_steps: int, *, chat: bool, checkpoint: Path | None) -> float:
    """Seconds the graph ran, once it was compiled."""
    worker = (chat_worker() if chat else bare_worker()).compile()

    def call_worker(state: Worker, config: RunnableConfig) -> dict[str, Any]:
        worker.invoke(state, config)
        return {"results": ["done"]}

    main = StateGraph(Main)
    main.add_node("worker", call_worker)
    main.add_conditional_edges(
        START,
        lambda _: [
            Send("worker", {"messages": [HumanMessage(f"part {k}")], "left": num_steps})
            for k in range(num_agents)
        ],
    )
    main.add_edge("worker", END)
    saver = None
    if checkpoint is not None:
        saver = SqliteSaver(sqlite3.connect(checkpoint, check_same_thread=False))
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": 4 * num_steps + 50}
    graph = main.compile(checkpointer=saver)
    began = time.perf_counter()
    out = graph.invoke({"results": []}, config)
    assert len(out["results"]) == num_agents
    return time.perf_counter() - began
