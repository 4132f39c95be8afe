"""A pydantic-ai agent whose tools ask another agent, two at once, and tell the time.

python pydantic_ai_team.py QUESTION
"""

from __future__ import annotations

import random
import sys
import time
import uuid

from pydantic_ai import Agent

RUN = uuid.uuid4()
worker = Agent("openai-chat:any", name="worker", instructions=f"You are a worker. Request {RUN}.")
lead = Agent("openai-chat:any", name="lead", instructions="You lead.")


@worker.tool_plain
def ticket(topic: str) -> dict[str, str]:
    """Open a ticket."""
    return {"ticket_id": f"tk-{random.getrandbits(44):011x}", "topic": topic, "opened": time.ctime()}


@lead.tool_plain
async def ask_worker(input: str) -> str:
    """Ask a worker."""
    return (await worker.run(input)).output


print(lead.run_sync(sys.argv[1]).output)
