"""Who draws a completion for a prompt."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from baton.serve.backend import Unanswerable
from baton.serve.backends.prompts import Prompt
from baton.serve.exchange import Alternative, Ask
from baton.team.protocol import MODEL_FAILED, Answer, Engine, EngineError, Request
from baton.trace.records import Sampling


class Sampled(NamedTuple):
    """One completion."""

    answer: Answer
    alternatives: tuple[tuple[Alternative, ...], ...] = ()


class Sampler(Protocol):
    """What draws a completion for a prompt."""

    name: str
    most_alternatives: int
    """How many alternatives of a token it can tell."""

    async def sample(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> Sampled:
        """The same for the same prompt and key. Raises `Unanswerable` and nothing else."""
        ...

    async def close(self) -> None: ...


class EngineSampler:
    """One of Baton's engines."""

    most_alternatives = 0

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self._engine = engine

    async def sample(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> Sampled:
        request = Request(
            call=sampling.key or "",
            agent=ask.model,
            role=ask.model,
            entries=prompt.entries,
            prompt_ids=prompt.ids,
            sampling=sampling,
        )
        try:
            (answer,) = await self._engine.answer([request])
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the contract: Unanswerable and nothing else
            answer = EngineError(f"{type(error).__name__}: {error}")
        if isinstance(answer, EngineError):
            broken = str(answer).startswith(MODEL_FAILED)
            raise Unanswerable(f"{self.name} did not answer: {answer}", status=500 if broken else 502)
        return Sampled(answer)

    async def close(self) -> None:
        closing = getattr(self._engine, "close", None)
        if asyncio.iscoroutinefunction(closing):
            await closing()
