"""A team of openai-agents: a lead with an agent as a tool, two of them at once, and a handoff to a writer.

python openai_agents_team.py QUESTION
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid

from agents import Agent, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)
RUN = uuid.uuid4()


@function_tool
def ticket(topic: str) -> str:
    """Open a ticket."""
    return f'{{"ticket_id": "tk-{uuid.uuid4().hex[:10]}", "topic": "{topic}", "opened": "{time.ctime()}"}}'


worker = Agent(name="worker", instructions=f"You are a worker of run {RUN}.", tools=[ticket], model="any")
writer = Agent(name="writer", instructions="You write the report.", model="any")
lead = Agent(
    name="lead",
    instructions=f"You lead. Today is {time.strftime('%A, %d %B %Y')}.",
    tools=[worker.as_tool("ask_worker", "Ask a worker.")],
    handoffs=[writer],
    model="any",
)

print(asyncio.run(Runner.run(lead, sys.argv[1])).final_output)
