"""A LangGraph graph: a plan, three workers by Send, a report. Its model speaks Chat Completions.

python langgraph_team.py QUESTION
"""

from __future__ import annotations

import json
import operator
import os
import sys
import urllib.request
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

ROLES = {"human": "user", "ai": "assistant", "system": "system"}
RUN = uuid.uuid4()


class Endpoint(BaseChatModel):
    """Whatever OPENAI_BASE_URL points at."""

    @property
    def _llm_type(self) -> str:
        return "endpoint"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        said = [{"role": ROLES[one.type], "content": one.content} for one in messages]
        request = urllib.request.Request(
            os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps({"model": "any", "messages": said}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


model = Endpoint()


class State(TypedDict):
    question: str
    plan: str
    found: Annotated[list[str], operator.add]
    report: str


def plan(state: State) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    said = model.invoke([SystemMessage(f"You plan. Run {RUN}, {now}."), HumanMessage(state["question"])])
    return {"plan": str(said.content)}


def send(state: State) -> list[Send]:
    return [Send("worker", {**state, "plan": f"{state['plan']}, part {place}"}) for place in range(3)]


def worker(state: State) -> dict[str, Any]:
    said = model.invoke([SystemMessage("You are a worker."), HumanMessage(state["plan"])])
    return {"found": [str(said.content)]}


def report(state: State) -> dict[str, Any]:
    said = model.invoke([SystemMessage("You write the report."), HumanMessage(f"{RUN}: {state['found']}")])
    return {"report": str(said.content)}


graph = StateGraph(State)
graph.add_node("plan", plan)
graph.add_node("worker", worker)
graph.add_node("report", report)
graph.add_edge(START, "plan")
graph.add_conditional_edges("plan", send, ["worker"])
graph.add_edge("worker", "report")
graph.add_edge("report", END)
print(graph.compile().invoke({"question": sys.argv[1], "found": []})["report"])
