"""An AutoGen program: an assistant whose tools are assistants."""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
)


def client(parallel: bool = True) -> OpenAIChatCompletionClient:
    more = {} if parallel else {"parallel_tool_calls": False}
    return OpenAIChatCompletionClient(model="any", model_info=INFO, **more)


def lookup(q: str) -> str:
    """Look it up."""
    return f"nothing is known of {q}"


scout = AssistantAgent(
    "scout", client(), description="Ask the scout.", system_message="You are the scout. Look things up.",
    tools=[lookup], reflect_on_tool_use=True,
)  # fmt: skip
judge = AssistantAgent(
    "judge",
    client(),
    description="Ask the judge.",
    system_message="You are the judge. Weigh what you are told.",
)
lead = AssistantAgent(
    "lead", client(parallel=False), system_message="You are the lead. Let others work.",
    tools=[AgentTool(scout, return_value_as_last_message=True), AgentTool(judge, return_value_as_last_message=True)],
    max_tool_iterations=8,
)  # fmt: skip
print(asyncio.run(lead.run(task=sys.argv[1])).messages[-1].to_text())
