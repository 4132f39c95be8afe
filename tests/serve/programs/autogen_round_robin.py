"""An AutoGen program: a writer and a critic take turns in one room."""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
)
client = OpenAIChatCompletionClient(model="any", model_info=INFO)
writer = AssistantAgent("writer", client, system_message="You are the writer. Write.")
critic = AssistantAgent("critic", client, system_message="You are the critic. Find faults.")
team = RoundRobinGroupChat([writer, critic], termination_condition=MaxMessageTermination(5))
print(asyncio.run(team.run(task=sys.argv[1])).messages[-1].to_text())
