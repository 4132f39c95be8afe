"""AutoGen: one AssistantAgent per worker, a replayed client that asks for a tool at every turn."""

from __future__ import annotations

import asyncio
import logging
import time

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

logging.disable(logging.CRITICAL)
INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    family=ModelFamily.UNKNOWN,
    structured_output=False,
)


async def look(q: int) -> str:
    """Look something up."""
    return "ok"


def replies(num_steps: int) -> list[CreateResult | str]:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    call = [
        CreateResult(
            finish_reason="function_calls",
            content=[FunctionCall(id=f"c{k}", name="look", arguments='{"q": 1}')],
            usage=usage,
            cached=False,
        )
        for k in range(num_steps - 1)
    ]
    return [*call, "done"]


def run(num_agents: int, num_steps: int) -> float:
    """Seconds it took."""

    async def one(k: int) -> None:
        client = ReplayChatCompletionClient(replies(num_steps), INFO)
        agent = AssistantAgent(f"worker{k}", client, tools=[look], max_tool_iterations=num_steps)
        await agent.run(task=f"part {k}")

    async def team() -> None:
        await asyncio.gather(*(one(k) for k in range(num_agents)))

    began = time.perf_counter()
    asyncio.run(team())
    return time.perf_counter() - began
