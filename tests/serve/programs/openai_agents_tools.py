"""An openai-agents program: a lead with agents as tools, one of which has another; two asked the same at once."""

import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from agents.tracing import set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(os.environ.get("TRACING") is None)
client = AsyncOpenAI()
kind = OpenAIResponsesModel if os.environ.get("DIALECT") == "responses" else OpenAIChatCompletionsModel
model = kind(model="any", openai_client=client)


@function_tool
def lookup(q: str) -> str:
    """Look it up."""
    return f"nothing is known of {q}"


helper = Agent(name="helper", instructions="You are the helper. Help with details.", model=model)
scout = Agent(
    name="scout",
    instructions="You are the scout. Look things up.",
    model=model,
    tools=[lookup, helper.as_tool("ask_helper", "Ask the helper.")],
)
judge = Agent(name="judge", instructions="You are the judge. Weigh what you are told.", model=model)
lead = Agent(
    name="lead",
    instructions="You are the lead. Let others work.",
    model=model,
    tools=[scout.as_tool("ask_scout", "Ask the scout."), judge.as_tool("ask_judge", "Ask the judge.")],
)
print(Runner.run_sync(lead, sys.argv[1]).final_output)
