"""A help desk with LangGraph: a front desk chooses a department, whose node answers.

python desk_graph.py "Where is the rake?"
"""

import sys
from typing import Literal

from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from stock import AISLES, FRONT, knows, knows_all

model = ChatOpenAI(model="any")


def handover(name: str):
    @tool(f"transfer_to_{name}", description=f"Hand over to the {name} desk.")
    def transfer() -> str:
        return name

    return transfer


def front(state: MessagesState) -> dict:
    desk = model.bind_tools([handover(name) for name in AISLES])
    return {"messages": [desk.invoke([SystemMessage(FRONT), *state["messages"]])]}


def department(name: str):
    def answer(state: MessagesState) -> dict:
        return {"messages": [model.invoke([SystemMessage(knows(name)), state["messages"][0]])]}

    return answer


def route(state: MessagesState) -> Literal["garden", "kitchen", "paint", "tools", "__end__"]:
    calls = state["messages"][-1].tool_calls
    return calls[0]["name"].removeprefix("transfer_to_") if calls else END


def main() -> None:
    if sys.argv[1] == "--alone":
        print(model.invoke([("system", knows_all()), ("user", sys.argv[2])]).content)
        return
    graph = StateGraph(MessagesState)
    graph.add_node("front", front)
    graph.add_edge(START, "front")
    graph.add_conditional_edges("front", route)
    for name in AISLES:
        graph.add_node(name, department(name))
        graph.add_edge(name, END)
    said = graph.compile().invoke({"messages": [("user", sys.argv[1])]})
    print(said["messages"][-1].content)


main()
