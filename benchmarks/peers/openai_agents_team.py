"""openai-agents: one runner per worker, a model that asks for a tool at every turn."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


@function_tool
def look(q: int) -> str:
    """Look something up."""
    return "ok"


class FakeModel(Model):
    def __init__(self, num_steps: int) -> None:
        self.left = num_steps

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.left -= 1
        if self.left > 0:
            item: Any = ResponseFunctionToolCall(
                type="function_call", name="look", arguments='{"q": 1}', call_id=f"c{self.left}"
            )
        else:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            item = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("not used")


def run(num_agents: int, num_steps: int) -> float:
    """Seconds it took."""

    async def one(k: int) -> None:
        agent = Agent(name=f"worker{k}", instructions="work", model=FakeModel(num_steps), tools=[look])
        await Runner.run(
            agent, f"part {k}", max_turns=num_steps + 1, run_config=RunConfig(tracing_disabled=True)
        )

    async def team() -> None:
        await asyncio.gather(*(one(k) for k in range(num_agents)))

    began = time.perf_counter()
    asyncio.run(team())
    return time.perf_counter() - began
