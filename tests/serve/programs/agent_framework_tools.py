"""An agent-framework program: an agent whose tools are agents."""

import asyncio
import os
import sys
from typing import Annotated

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(
    model="any", api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"]
)


@tool(approval_mode="never_require")
def lookup(q: Annotated[str, "what"]) -> str:
    """Look it up."""
    return f"nothing is known of {q}"


scout = Agent(client=client, name="scout", instructions="You are the scout. Look things up.", tools=[lookup])
judge = Agent(client=client, name="judge", instructions="You are the judge. Weigh what you are told.")
lead = Agent(
    client=client,
    name="lead",
    instructions="You are the lead. Let others work.",
    tools=[
        scout.as_tool(name="research", description="Ask the scout.", arg_name="question"),
        judge.as_tool(name="weigh", description="Ask the judge.", arg_name="claim"),
    ],
)
print(asyncio.run(lead.run(sys.argv[1])).text)
