"""A LangGraph program: a plan, a worker for each part at the same time, and one who puts it together."""

import operator
import sys
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from langgraph.types import Send

model = ChatOpenAI(model="any")


class State(TypedDict):
    task: str
    topics: list[str]
    found: Annotated[list[str], operator.add]
    answer: str


def asked(role: str, text: str) -> str:
    head = SystemMessage(f"You are the {role}. Do your part.")
    return str(model.invoke([head, HumanMessage(text)]).content)


def plan(state: State) -> Any:
    return {"topics": asked("planner", state["task"]).split("; ")}


def each(state: State) -> Any:
    return [Send("worker", {"topic": topic}) for topic in state["topics"]]


def worker(state: Any) -> Any:
    return {"found": [asked("worker", f"Write about {state['topic']}.")]}


def merge(state: State) -> Any:
    return {"answer": asked("merger", "Put together:\n" + "\n".join(state["found"]))}


graph = StateGraph(State)
for node in (plan, worker, merge):
    graph.add_node(node.__name__, node)
graph.add_edge(START, "plan")
graph.add_conditional_edges("plan", each, ["worker"])
graph.add_edge("worker", "merge")
print(graph.compile(name="lead").invoke({"task": sys.argv[1]})["answer"])
