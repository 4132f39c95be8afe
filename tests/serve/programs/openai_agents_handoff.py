"""An openai-agents program: triage hands over to an expert, who asks an agent as a tool and hands back."""

import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from agents.tracing import set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(os.environ.get("TRACING") is None)
client = AsyncOpenAI()
kind = OpenAIResponsesModel if os.environ.get("DIALECT") == "responses" else OpenAIChatCompletionsModel
model = kind(model="any", openai_client=client)

clerk = Agent(name="clerk", instructions="You are the clerk. File things.", model=model)
expert = Agent(
    name="expert",
    instructions="You are the expert. Know it all.",
    model=model,
    tools=[clerk.as_tool("ask_clerk", "Ask the clerk.")],
)
triage = Agent(
    name="triage", instructions="You are the triage. Pass questions on.", model=model, handoffs=[expert]
)
expert.handoffs = [triage]
print(Runner.run_sync(triage, sys.argv[1]).final_output)
