"""Who draws a completion for a prompt."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from baton.serve.backend import Unanswerable
from baton.serve.backends.guided import AnswerGuides, AnswerWatch, Form
from baton.serve.backends.prompts import Prompt
from baton.serve.exchange import Alternative, Ask
from baton.serve.tool_parsers.tool_form import ToolParser
from baton.team.protocol import MODEL_FAILED, Answer, Engine, EngineError, Request
from baton.trace.records import Sampling

_MOST_ALTERNATIVES = 20


class Sampled(NamedTuple):
    """One completion."""

    answer: Answer
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    form: Form | None = None
    """What it was to be held to while it was drawn, and whether it was."""


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

    def __init__(
        self, engine: Engine, guides: AnswerGuides | None = None, parser: ToolParser | None = None
    ) -> None:
        """`guides` and the `parser` of the model's family: answers are held to their form while they are drawn."""
        self.name = engine.name
        self.most_alternatives = _MOST_ALTERNATIVES if getattr(engine, "watches", False) else 0
        self._engine = engine
        self._guides = guides
        self._parser = parser

    async def sample(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> Sampled:
        form, watch = self._watched(ask, prompt)
        request = Request(
            call=sampling.key or "",
            agent=ask.model,
            role=ask.model,
            entries=prompt.entries,
            prompt_ids=prompt.ids,
            sampling=sampling,
            watch=watch,
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
        return Sampled(answer, () if watch is None else self._alternatives(watch, ask, answer), form)

    def _watched(self, ask: Ask, prompt: Prompt) -> tuple[Form | None, AnswerWatch | None]:
        """What an answer is held to, and who sees to it; nobody where there is nothing to see to."""
        top = ask.logprobs or 0
        form = None
        if self._guides is not None and self._parser is not None:
            form = self._guides.form(ask, self._parser)
            if form is not None and prompt.in_thought:
                form = Form(None, "the answer begins with a thought, which has no form")
            if form is not None and form.grammar is not None:
                return form, self._guides.watch(form, top)
        return form, AnswerWatch(None, top) if top else None

    def _alternatives(
        self, watch: AnswerWatch, ask: Ask, answer: Answer
    ) -> tuple[tuple[Alternative, ...], ...]:
        if not ask.logprobs:
            return ()
        decode = self._engine.tokenizer.decode  # type: ignore[attr-defined]  # those that are watched have one
        return tuple(
            tuple(Alternative(token=decode([token]), logprob=min(logprob, 0.0)) for token, logprob in place)
            for place in watch.heard[: len(answer.completion_ids or ())]
        )

    async def close(self) -> None:
        closing = getattr(self._engine, "close", None)
        if asyncio.iscoroutinefunction(closing):
            await closing()
