"""A LangGraph program whose branches are asked the same words: four voters, each of whom explains, and a count."""

import operator
import sys
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from langgraph.types import Send

model = ChatOpenAI(model="any")


class State(TypedDict):
    task: str
    found: Annotated[list[str], operator.add]
    answer: str


def each(state: State) -> Any:
    return [Send("voter", {"task": state["task"], "seat": seat}) for seat in range(4)]


def voter(state: Any) -> Any:
    talk = [SystemMessage("You are a voter. Do your part."), HumanMessage(state["task"])]
    vote = str(model.invoke(talk).content)
    why = model.invoke([*talk, AIMessage(vote), HumanMessage(f"Seat {state['seat']}: why?")])
    return {"found": [f"{vote}, because {why.content}"]}


def count(state: State) -> Any:
    told = HumanMessage("The votes by seat:\n" + "\n".join(state["found"]))
    return {"answer": str(model.invoke([SystemMessage("You are the counter."), told]).content)}


graph = StateGraph(State)
graph.add_node("voter", voter)
graph.add_node("count", count)
graph.add_conditional_edges(START, each, ["voter"])
graph.add_edge("voter", "count")
done = graph.compile(name="lead").invoke({"task": sys.argv[1]})
print(*done["found"], done["answer"], sep="\n")
