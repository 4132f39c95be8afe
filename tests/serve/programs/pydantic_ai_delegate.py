"""A pydantic-ai program: an agent whose tools run other agents, one with a typed output."""

import os
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel

if os.environ.get("TRACING"):
    Agent.instrument_all()
model = OpenAIChatModel("any")


class Verdict(BaseModel):
    verdict: str
    marks: int


scout = Agent(model, name="scout", instructions="You are the scout. Look things up.")
judge = Agent(
    model, name="judge", instructions="You are the judge. Weigh what you are told.", output_type=Verdict
)
lead = Agent(model, name="lead", instructions="You are the lead. Let others work.")


@scout.tool_plain
def lookup(q: str) -> str:
    """Look it up."""
    return f"nothing is known of {q}"


@lead.tool
async def research(context: RunContext[None], question: str) -> str:
    """Let the scout find something out."""
    return (await scout.run(f"Find out: {question}", usage=context.usage)).output


@lead.tool
async def weigh(context: RunContext[None], claim: str) -> str:
    """Let the judge weigh something."""
    found = (await judge.run(claim, usage=context.usage)).output
    return f"{found.verdict} ({found.marks} marks)"


print(lead.run_sync(sys.argv[1]).output)
