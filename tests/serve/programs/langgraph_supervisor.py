"""A LangGraph program: an agent whose tools run other agents; one of them is a graph of its own."""

import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="any")


@tool
def lookup(q: str) -> str:
    """Look it up."""
    return f"nothing is known of {q}"


scout = create_agent(model, [lookup], name="scout", system_prompt="You are the scout. Look things up.")
polisher = create_agent(model, [], name="polisher", system_prompt="You are the polisher. Make it shine.")


def polish(state: MessagesState) -> Any:
    """One node that runs an agent."""
    return {"messages": polisher.invoke({"messages": state["messages"][-1:]})["messages"][-1:]}


graph = StateGraph(MessagesState)
graph.add_node("polish", polish)
graph.add_edge(START, "polish")
subgraph = graph.compile(name="polishing")


@tool
def research(question: str) -> str:
    """Let the scout find something out."""
    return str(scout.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content)


@tool
def improve(text: str) -> str:
    """Let a text be improved."""
    told = HumanMessage(f"Please improve this text, and say nothing else:\n\n{text}")
    return str(subgraph.invoke({"messages": [told]})["messages"][-1].content)


lead = create_agent(
    model, [research, improve], name="lead", system_prompt="You are the lead. Let others work."
)
print(lead.invoke({"messages": [HumanMessage(sys.argv[1])]})["messages"][-1].content)
