"""Answers from a service that speaks the Tinker protocol, token ids in and out.

The tokenizer is here and the weights are there: prompts go as ids, and what was drawn comes back as ids with their
log-probabilities. Each request has a seed of its own, made of its sampling key, so that it is drawn alike again as far
as the service keeps its seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

from baton.engine.template import Decoder, Encoder
from baton.errors import UsageError
from baton.learn.scale.tinker_client import TinkerClient
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.records import Floats, Ints

_AT_ONCE = 64
"""Requests under way; each waits in a thread of its own."""


class TinkerEngine:
    """A model at a service, behind the engine protocol. Weights are set by `moved_to`."""

    def __init__(
        self, client: TinkerClient, tokenizer: Any, ends: Sequence[int], *, name: str, vocabulary: int
    ) -> None:
        """`ends` are the ids that end an answer; `vocabulary`: how many ids the tokenizer's model has."""
        self.name = name
        self.version = ""
        """Which weights answer; empty: none do yet."""
        self.path: str | None = None
        self.tokenizer = tokenizer
        self._client = client
        self._ends = tuple(ends)
        self._vocabulary = vocabulary
        self._encoder = Encoder(tokenizer, None)
        self._decoder = Decoder(tokenizer)
        self._pool: ThreadPoolExecutor | None = None

    def moved_to(self, version: str, path: str) -> None:
        """Answer with the weights at this path from now on."""
        self.version, self.path = version, path

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return self._encoder.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, "baton-tinker")
        loop = asyncio.get_running_loop()
        return list(
            await asyncio.gather(*(loop.run_in_executor(self._pool, self._answer, each) for each in requests))
        )

    def _answer(self, request: Request) -> Answer | EngineError:
        assert self.path is not None, "weights are published before anybody asks"
        sampling = request.sampling
        if sampling.stop:
            return EngineError("a service ends answers at token ids here; give no stop strings.")
        params = {
            "max_tokens": sampling.max_tokens or 256,
            "seed": seed_of(sampling.key or request.call),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1 if sampling.top_k is None else sampling.top_k,
            "stop": list(self._ends),
        }
        prompt = list(request.prompt_ids or ())
        try:
            told = self._client.sample(self.path, prompt, params)
            return self._read(told, prompt)
        except EngineError as error:
            return error
        except UsageError as error:  # the key was taken back: recorded like any failed call
            return EngineError(str(error))

    def _read(self, told: dict[str, Any], prompt: Sequence[int]) -> Answer:
        try:
            (said,) = told["sequences"]
            ids, logprobs = list(map(int, said["tokens"])), list(map(float, said["logprobs"]))
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"the service's answer cannot be read: {error!r}") from None
        if len(ids) != len(logprobs) or not ids:
            raise EngineError(f"the service gave {len(ids)} tokens and {len(logprobs)} log-probabilities.")
        if (worst := max(ids)) >= self._vocabulary:
            raise EngineError(
                f"the service drew token {worst}, and the tokenizer here has {self._vocabulary}: it is another "
                "model's. Name the folder of the base model as the policy's model."
            )
        text, ends = self._decoder.text_and_ends(ids)
        return Answer(
            text=text,
            policy=self.name,
            policy_version=self.version,
            completion_ids=Ints(ids),
            logprobs=Floats(logprobs),
            token_ends=Ints(ends),
            prompt_tokens=len(prompt),
            completion_tokens=len(ids),
            finish_reason=str(said.get("stop_reason") or "stop"),
        )

    def close(self) -> None:
        """Let go of the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def seed_of(key: str) -> int:
    """A seed of 31 bits for a sampling key."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big") >> 1
