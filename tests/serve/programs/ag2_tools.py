"""An AG2 program: a lead with two agents as tools."""

import asyncio
import sys

from ag2 import Agent
from ag2.config import OpenAIConfig
from ag2.tools import tool

config = OpenAIConfig(model="any")


@tool
def lookup(q: str) -> str:
    """Look something up."""
    return f"{q}: 1850"


scout = Agent("scout", prompt="You are the scout. Find out.", config=config, tools=[lookup])
judge = Agent("judge", prompt="You are the judge. Say whether it is so.", config=config)
lead = Agent(
    "lead",
    prompt="You are the lead. Have others do the work.",
    config=config,
    tools=[scout.as_tool(description="finds out"), judge.as_tool(description="judges")],
)
print(asyncio.run(lead.ask(sys.argv[1])).body)
