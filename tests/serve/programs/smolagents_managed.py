"""A smolagents program: a manager with managed agents; histories tell tool calls as text."""

import os
import sys

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

model = OpenAIServerModel("any", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])


@tool
def lookup(q: str) -> str:
    """Look it up.

    Args:
        q: what
    """
    return f"nothing is known of {q}"


quiet = {"verbosity_level": 0}
scout = ToolCallingAgent([lookup], model, name="scout", description="The scout looks things up.", **quiet)
judge = ToolCallingAgent([], model, name="judge", description="The judge weighs things.", **quiet)
lead = ToolCallingAgent([], model, managed_agents=[scout, judge], **quiet)
print(lead.run(sys.argv[1]))
