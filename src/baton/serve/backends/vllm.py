"""A vLLM server as a backend, token in and token out.

With the model's tokenizer at hand (`?tokenizer=DIR`) prompts are made here, as for a local model, and go out as token
ids to `/v1/completions`, which gives the completion's ids and log-probabilities back (`return_token_ids`): the ids of a
conversation are kept and never drift. Without one the server's chat endpoint is asked, tools and all, and what it read
and drew is written down by its ids; then the server encodes every conversation anew, and `Reply.rules` says so.

Written after vLLM's protocol as of 2026 (`entrypoints/openai/completion/protocol.py`); start the server with
`--logprobs-mode processed_logprobs` and say `?logprobs=processed`, or log-probabilities are kept only of calls at
temperature 1 without truncation, because by default vLLM tells those from before both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from baton.engine import read_options
from baton.engine.openai import ServerLimits
from baton.engine.posting import check_address, read_json, seed_of
from baton.errors import UsageError, nearest
from baton.serve.backend import Backend, Unanswerable
from baton.serve.backends.engine import EngineBackend, EngineOptions
from baton.serve.backends.posting import ProgramPoster, find_secret
from baton.serve.backends.prompts import Prompt
from baton.serve.backends.samplers import Sampled
from baton.serve.backends.upstream import UpstreamBackend
from baton.serve.exchange import Alternative, Ask
from baton.team.protocol import Answer
from baton.trace.records import Floats, Ints, Sampling

if TYPE_CHECKING:
    from baton.serve.backends.template_prompts import TemplatePrompts

T = TypeVar("T")
FORM = "vllm:MODEL@URL[?tokenizer=DIR&tools=hermes&thinking=keep&logprobs=processed&key=ENVIRONMENT_VARIABLE]"
_KEY = "VLLM_API_KEY"
_MOST_ALTERNATIVES = 20


class _Logprobs(Struct):
    """Of one completion, token by token."""

    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] = []


class _Choice(Struct):
    """One completion of vLLM's, as far as it is used."""

    text: str
    token_ids: list[int]
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int
    completion_tokens: int | None = None


class _Completion(Struct):
    """The body of `/v1/completions`."""

    model: str
    choices: list[_Choice]
    usage: _Usage


class _Model(Struct):
    id: str
    max_model_len: int | None = None


class _Models(Struct):
    """The body of `/v1/models`."""

    data: list[_Model]


class VllmSampler:
    """Completions of token ids."""

    most_alternatives = _MOST_ALTERNATIVES

    def __init__(
        self,
        model: str,
        url: str,
        *,
        key: str = _KEY,
        processed: bool = False,
        limits: ServerLimits | None = None,
    ) -> None:
        """`processed`: the server tells log-probabilities after temperature and truncation."""
        self.name = model
        self._url = check_address(url, FORM)
        self._key = key
        self._processed = processed
        self._poster = ProgramPoster(limits)

    async def sample(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> Sampled:
        told = await self._poster.post(
            f"{self._url}/completions",
            self._body(ask, prompt, sampling),
            secret=find_secret(self._key, "authorization"),
            read=lambda raw, kind: _decoded(read_json(raw, kind), _Completion),
        )
        if len(told.choices) != 1:
            raise Unanswerable(f"vLLM gave {len(told.choices)} completions; expected one.", status=502)
        choice = told.choices[0]
        answer = Answer(
            text=choice.text,
            policy=self.name,
            policy_version=told.model,
            completion_ids=Ints(choice.token_ids),
            logprobs=self._logprobs(choice, sampling),
            prompt_tokens=told.usage.prompt_tokens,
            completion_tokens=len(choice.token_ids),
            finish_reason=choice.finish_reason or "stop",
        )
        return Sampled(answer, _alternatives(choice) if ask.logprobs else ())

    async def context(self) -> int | None:
        """How many tokens the server's model reads, as it says itself."""
        body = await self._poster.get(f"{self._url}/models", secret=find_secret(self._key, "authorization"))
        served = _decoded(body, _Models).data
        found = next((each for each in served if each.id == self.name), None)
        if found is None:
            names = [each.id for each in served]
            raise Unanswerable(
                f"the vLLM server has no model {self.name!r}. {nearest(self.name, names)}", status=404
            )
        return found.max_model_len

    async def close(self) -> None:
        await self._poster.close()

    def _body(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        assert prompt.ids is not None, "prompts for it are made with a tokenizer"
        body: dict[str, Any] = {
            "model": self.name,
            "prompt": prompt.ids,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed_of(sampling.key or ""),
            "logprobs": ask.logprobs or 0,
            "return_token_ids": True,
        }
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if not ask.tools:  # with tools, an answer may be a use of one
            if ask.json_schema is not None:
                inner = {"name": "answer", "schema": ask.json_schema}
                body["response_format"] = {"type": "json_schema", "json_schema": inner}
            elif ask.json:
                body["response_format"] = {"type": "json_object"}
        return body

    def _logprobs(self, choice: _Choice, sampling: Sampling) -> Floats | None:
        plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and sampling.top_k is None
        given = [] if choice.logprobs is None else choice.logprobs.token_logprobs
        numbers = [min(each, 0.0) for each in given if each is not None]
        if not (plain or self._processed) or len(numbers) != len(choice.token_ids):
            return None
        return Floats(numbers)


def _alternatives(choice: _Choice) -> tuple[tuple[Alternative, ...], ...]:
    tops = [] if choice.logprobs is None else choice.logprobs.top_logprobs
    return tuple(
        tuple(
            Alternative(token=token, logprob=min(logprob, 0.0))
            for token, logprob in sorted((top or {}).items(), key=lambda each: -each[1])
        )
        for top in tops
    )


def _decoded(body: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(body, kind)
    except msgspec.MsgspecError as error:
        raise Unanswerable(
            f"the answer is not vLLM's: {error}. Does the server know return_token_ids (vLLM from 0.11 on)?",
            status=502,
        ) from None


class _VllmPrompts:
    """Prompts by the tokenizer, in the context that the server says it has."""

    def __init__(self, prompts: TemplatePrompts, sampler: VllmSampler) -> None:
        self._prompts = prompts
        self._sampler = sampler
        self.parser = prompts.parser
        self.context: int | None = None

    async def prompt(self, ask: Ask, growth: Any) -> Prompt:
        if self.context is None:
            self.context = await self._sampler.context()
        return await self._prompts.prompt(ask, growth)

    def said(self, answer: Answer) -> tuple[str, Ints | None]:
        return self._prompts.said(self._prompts.with_ends(answer))

    def after(self, answer: Answer) -> str:
        return self._prompts.after(answer)


def vllm_backend(rest: str) -> Backend:
    """From what stands after `vllm:`."""
    known = ("tokenizer", "tools", "thinking", "logprobs", "key", "max_tokens")
    place, given = read_options(rest, known)
    model, at, url = place.rpartition("@")
    if not at or not model:
        raise UsageError(f"'vllm:{rest}' lacks a part. Type: {FORM}")
    logprobs = given.get("logprobs")
    if logprobs not in (None, "processed"):
        raise UsageError(f"logprobs {logprobs!r} is not known. Expected processed, or nothing.")
    key = given.get("key", _KEY)
    if "tokenizer" not in given:
        for name in ("tools", "thinking", "max_tokens"):
            if name in given:
                raise UsageError(f"{name} is for prompts that are made here, which needs tokenizer=DIR too.")
        return UpstreamBackend(
            url, dialect="chat", model=model, key=key, extra={"return_token_ids": True}, seeded=True
        )
    sampler = VllmSampler(model, url, key=key, processed=logprobs == "processed")
    return _with_tokenizer(sampler, given)


def _with_tokenizer(sampler: VllmSampler, given: dict[str, str]) -> EngineBackend:
    thinking = given.get("thinking", "template")
    if thinking not in ("template", "keep"):
        raise UsageError(f"thinking {thinking!r} is not known. {nearest(thinking, ('template', 'keep'))}")
    folder = Path(given["tokenizer"])
    if not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r}. Give the one with the model's tokenizer.json.")
    from baton.serve.backends.template_prompts import TemplatePrompts, open_tokenizer
    from baton.serve.tool_parsers import find_parser

    parser = find_parser(given["tools"]) if "tools" in given else None
    prompts = TemplatePrompts(
        open_tokenizer(folder),
        policy=sampler.name,
        parser=parser,
        thinking=thinking,  # type: ignore[arg-type]  # checked above
    )
    return EngineBackend(sampler, _VllmPrompts(prompts, sampler), options=EngineOptions.of(given))
