"""The engine on a vLLM server: contexts become ids here, the server draws, and what it drew is kept as it was drawn.

A call is drawn by a seed made of its sampling key, so a try after a silence is the same draw and no second one, and a
batch of any size gives the same tokens (up to rounding). The server is looked at once, before the first call
(`checks`). Log-probabilities are kept where they are of what was drawn from: always, if the server runs with
`--logprobs-mode processed_logprobs`; otherwise only of calls at temperature 1 without truncation.

Which weights answered: the server's own name for them, call by call and token by token, where it says so; an adapter's
version is fixed by its name. A server that nobody named weights on has those that this engine was made with.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from baton.engine.posting import NoAnswer, seed_of
from baton.engine.template import Decoder, Encoder, PlainTemplate
from baton.engine.vllm.bodies import Generated
from baton.engine.vllm.checks import FLAGS, ServerFacts, check_server, end_ids_of
from baton.engine.vllm.client import Constraint, VllmClient
from baton.engine.vllm.local import LocalServer
from baton.errors import UsageError
from baton.team.budget import Charging
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.records import Floats, Ints, Sampling, VersionSpan

_UNNAMED = "default"
"""What vLLM calls weights that nobody named."""


class DrawnAnswer(NamedTuple):
    """An answer, and what else could have been said token by token, as text with its log-probability."""

    answer: Answer
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()


class _Shared:
    """What all views of one server have in common."""

    def __init__(
        self,
        client: VllmClient,
        tokenizer: Any,
        template: PlainTemplate | None,
        folder: Path | None,
        server: LocalServer | None,
    ) -> None:
        self.client = client
        self.server = server
        """One that is started before it is asked, and ended with the engine."""
        self.tokenizer = tokenizer
        self.encoder = Encoder(tokenizer, template)
        self.decoder = Decoder(tokenizer)
        self.ends = end_ids_of(tokenizer, folder)
        self.source = repr(str(folder)) if folder else "memory"
        self.facts: dict[str, ServerFacts] = {}
        """By the model asked for."""
        self.looking: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[ServerFacts]] = {}


class VllmEngine:
    """A model, or an adapter on one, of a vLLM server behind the engine protocol."""

    separate = True
    charging: Charging = "kept"

    def __init__(
        self,
        client: VllmClient,
        model: str,
        tokenizer: Any,
        *,
        name: str | None = None,
        version: str = "0",
        template: PlainTemplate | None = None,
        folder: Path | None = None,
        server: LocalServer | None = None,
    ) -> None:
        """`model` is the server's name for who answers; `name` the policy's; `folder` where the tokenizer is from;
        `server` one of our own, started when it is first asked."""
        self.name = name or model
        self.model = model
        self.version = version
        self._pinned = False
        self._shared = _Shared(client, tokenizer, template, folder, server)

    def with_model(self, model: str, version: str) -> VllmEngine:
        """The same server answering as another of its models or adapters, whose version is this one for good."""
        made = copy.copy(self)
        made.model, made.version, made._pinned = model, version, True
        return made

    @property
    def client(self) -> VllmClient:
        return self._shared.client

    @property
    def tokenizer(self) -> Any:
        return self._shared.tokenizer

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return self._shared.encoder.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return list(await asyncio.gather(*map(self._answer, requests)))

    async def reach(self) -> None:
        """Raise where the server cannot be asked, or is not the one that was meant."""
        await self.facts()

    async def facts(self) -> ServerFacts:
        """What the server is, looked at once."""
        shared = self._shared
        if self.model in shared.facts:
            return shared.facts[self.model]
        if self._pinned and shared.facts:
            return next(iter(shared.facts.values()))  # an adapter of a server that was looked at
        key = asyncio.get_running_loop(), self.model
        if key not in shared.looking:
            shared.looking[key] = asyncio.ensure_future(self._look())
        try:
            found = await asyncio.shield(shared.looking[key])
        finally:
            if key in shared.looking and shared.looking[key].done():
                del shared.looking[key]
        shared.facts[self.model] = found
        return found

    async def _look(self) -> ServerFacts:
        shared = self._shared
        if shared.server is not None:
            shared.client.url = await asyncio.to_thread(shared.server.start)
        try:
            return await check_server(shared.client, self.model, shared.tokenizer, source=shared.source)
        except (NoAnswer, UsageError) as error:
            raise self._ended(error) from None

    async def check_trainable(self) -> None:
        """Raise where the server's log-probabilities could not be learned from."""
        if not (await self.facts()).processed:
            raise UsageError(
                f"the vLLM server at {self.client.url} tells log-probabilities from before temperature and truncation, "
                f"which nothing can be learned from. Start it with: {FLAGS}"
            )

    async def draw(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        alternatives: int = 0,
        constraint: Constraint | None = None,
    ) -> DrawnAnswer:
        """One completion of ids. Raises `EngineError`."""
        facts = await self._looked_at()
        _check_room(len(prompt), sampling.max_tokens, facts.model.max_model_len)
        shared = self._shared
        told = await shared.client.generate(
            prompt,
            model=self.model,
            sampling=sampling,
            seed=seed_of(sampling.key or ""),
            ends=sorted(shared.ends),
            alternatives=alternatives,
            constraint=constraint,
        )
        text, places = shared.decoder.spoken(told.token_ids.numpy().tolist(), shared.ends, sampling.stop)
        plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and sampling.top_k is None
        version, versions = self._versions(told, facts)
        answer = Answer(
            text=text,
            policy=self.name,
            policy_version=version,
            versions=versions,
            completion_ids=told.token_ids,
            logprobs=told.logprobs if plain or facts.processed else None,
            token_ends=Ints(places),
            prompt_tokens=told.prompt_tokens,
            completion_tokens=len(told.token_ids),
            finish_reason=told.finish_reason,
        )
        return DrawnAnswer(answer, self._in_words(told) if alternatives else ())

    async def score(self, prompt: Sequence[int], completion: Sequence[int]) -> Floats:
        """The model's own log-probability of each token of a completion, at temperature 1 and with nothing cut off."""
        scores = await self._shared.client.score([*prompt, *completion], model=self.model)
        return Floats(scores.numpy()[len(prompt) - 1 :].tolist())

    async def close(self) -> None:
        """Close this event loop's connections, and end a server of our own."""
        await self._shared.client.close()
        if self._shared.server is not None:
            await asyncio.to_thread(self._shared.server.close)
            self._shared.facts.clear()

    async def _looked_at(self) -> ServerFacts:
        try:
            return await self.facts()
        except UsageError as error:
            raise EngineError(str(error)) from None

    async def _answer(self, request: Request) -> Answer | EngineError:
        prompt = request.prompt_ids
        # A copy: the runtime's own sequence grows while this call is in flight.
        given = list(self.encode(request.entries, None) if prompt is None else prompt)
        sampling = request.sampling
        try:
            return (await self.draw(given, sampling)).answer
        except NoAnswer as error:
            return EngineError(str(self._ended(error)))
        except EngineError as error:
            return error

    def _ended(self, error: Exception) -> Exception:
        """Why a server of our own ended, if it did: that says more than that nobody answers."""
        server = self._shared.server
        if server is None or server.alive():
            return error
        self._shared.facts.clear()  # it is started and looked at again for the next call
        return server.why()

    def _versions(self, told: Generated, facts: ServerFacts) -> tuple[str, tuple[VersionSpan, ...] | None]:
        """The weights that a call began with, and who drew what where they changed."""
        if self._pinned or facts.model.parent is not None or not told.versions:
            return self.version, None
        spans = tuple(
            VersionSpan(version=self.version if each.version == _UNNAMED else each.version, end=each.end)
            for each in told.versions
        )
        return spans[0].version, spans if len(spans) > 1 else None

    def _in_words(self, told: Generated) -> tuple[tuple[tuple[str, float], ...], ...]:
        decode = self._shared.tokenizer.decode
        return tuple(
            tuple((decode([token]), logprob) for token, logprob in each) for each in told.alternatives
        )


def _check_room(prompt: int, asked: int | None, context: int | None) -> None:
    """In the words of the torch engine: a server would cut what was asked for without a word."""
    if not prompt:
        raise EngineError("the prompt is empty; a model needs at least one token to continue.")
    if asked is not None and asked < 1:
        raise EngineError(f"max_tokens is {asked}; expected at least 1.")
    if context is None:
        return
    if prompt >= context:
        raise EngineError(f"the prompt has {prompt} tokens; the context, {context}, has no room.")
    if asked is not None and prompt + asked > context:
        raise EngineError(
            f"the prompt has {prompt} tokens and max_tokens is {asked}, but the context is {context}. "
            "Shorten the prompt or lower max_tokens."
        )
