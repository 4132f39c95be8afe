"""A vLLM server as a backend, token in and token out.

With the model's tokenizer at hand (`?tokenizer=DIR`, or a server of our own) prompts are made here, as for a local
model, and go out as token ids: the ids of a conversation are kept and never drift. Without one the server's chat
endpoint is asked, tools and all, and what it read and drew is written down by its ids; then the server encodes every
conversation anew, and `Reply.rules` says so.

Where an answer has to be JSON, or to use a tool in Hermes' form, the server masks every token that would not fit (its
guided decoding), so nothing is drawn twice; then log-probabilities are of what the mask left. The
protocol is `baton.engine.vllm`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton.engine import read_options
from baton.engine.posting import NoAnswer
from baton.engine.vllm.client import KEY, MOST_ALTERNATIVES, Constraint, TaggedJson
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.spec import LOCAL, OPTIONS, engine_of
from baton.errors import UsageError, nearest
from baton.serve.backend import Backend, Unanswerable
from baton.serve.backends.engine import EngineBackend, EngineOptions
from baton.serve.backends.posting import find_secret, refusal
from baton.serve.backends.prompts import Prompt
from baton.serve.backends.samplers import Sampled
from baton.serve.backends.upstream import UpstreamBackend
from baton.serve.exchange import Alternative, Ask, ToolOffer
from baton.serve.tool_parsers.tool_form import ToolParser
from baton.team.protocol import Answer, EngineError
from baton.trace.records import Ints, Sampling

if TYPE_CHECKING:
    from baton.serve.backends.template_prompts import TemplatePrompts

FORM = "vllm:MODEL@URL[?tokenizer=DIR&tools=hermes&thinking=keep&key=ENVIRONMENT_VARIABLE] or vllm:local?model=DIR"


class VllmSampler:
    """Completions of token ids."""

    most_alternatives = MOST_ALTERNATIVES

    def __init__(self, engine: VllmEngine, parser: ToolParser) -> None:
        self.name = engine.name
        self._engine = engine
        self._around = getattr(parser, "around", None)

    async def sample(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> Sampled:
        assert prompt.ids is not None, "prompts for it are made with a tokenizer"
        try:
            drawn = await self._engine.draw(
                prompt.ids, sampling, alternatives=ask.logprobs or 0, constraint=self._constraint(ask)
            )
        except NoAnswer as error:
            raise refusal(error) from None
        except EngineError as error:
            raise Unanswerable(str(error), status=502) from None
        told = tuple(
            tuple(Alternative(token=token, logprob=logprob) for token, logprob in each)
            for each in drawn.alternatives
        )
        return Sampled(drawn.answer, told)

    def _constraint(self, ask: Ask) -> Constraint | None:
        """What the server holds the answer to: a schema, or one use of a tool where one is required."""
        if ask.tools:
            name = ask.tool_choice.removeprefix("tool:") if ask.tool_choice.startswith("tool:") else None
            wanted = [tool for tool in ask.tools if name in (None, tool.name)]
            if self._around is None or not wanted or (name is None and ask.tool_choice != "required"):
                return None  # an answer may be a use of one
            return Constraint(one_of=tuple(self._tagged(tool) for tool in wanted))
        if ask.json_schema is not None:
            return Constraint(json_schema=ask.json_schema)
        return Constraint(json=True) if ask.json else None

    def _tagged(self, tool: ToolOffer) -> TaggedJson:
        begin, end = self._around(tool.name)  # type: ignore[misc]  # only called where there is one
        return TaggedJson(begin=begin, json_schema=tool.parameters or {"type": "object"}, end=end)

    async def context(self) -> int | None:
        """How many tokens the server's model reads, as it says itself."""
        try:
            return (await self._engine.facts()).model.max_model_len
        except NoAnswer as error:
            raise refusal(error) from None
        except UsageError as error:
            raise Unanswerable(str(error), status=502) from None

    async def close(self) -> None:
        await self._engine.close()


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
        return self._prompts.said(answer)

    def after(self, answer: Answer) -> str:
        return self._prompts.after(answer)


def vllm_backend(rest: str) -> Backend:
    """From what stands after `vllm:`."""
    place, given = read_options(rest, (*OPTIONS, "tools", "thinking", "max_tokens"))
    key = given.get("key", KEY)
    if "tokenizer" not in given and place != LOCAL:
        return _by_chat(place, given, key)
    thinking = given.get("thinking", "template")
    if thinking not in ("template", "keep"):
        raise UsageError(f"thinking {thinking!r} is not known. {nearest(thinking, ('template', 'keep'))}")
    from baton.serve.backends.template_prompts import TemplatePrompts
    from baton.serve.tool_parsers import find_parser

    parser = find_parser(given["tools"]) if "tools" in given else None
    engine = engine_of(place, given, secret=lambda: find_secret(key, "authorization"))
    prompts = TemplatePrompts(
        engine.tokenizer,
        policy=engine.name,
        parser=parser,
        thinking=thinking,  # type: ignore[arg-type]  # checked above
    )
    sampler = VllmSampler(engine, prompts.parser)
    return EngineBackend(sampler, _VllmPrompts(prompts, sampler), options=EngineOptions.of(given))


def _by_chat(place: str, given: dict[str, str], key: str) -> Backend:
    for name in ("tools", "thinking", "max_tokens", "template"):
        if name in given:
            raise UsageError(f"{name} is for prompts that are made here, which needs tokenizer=DIR too.")
    model, at, url = place.rpartition("@")
    if not at or not model:
        raise UsageError(f"'vllm:{place}' lacks a part. Type: {FORM}")
    extra = {"return_token_ids": True}
    return UpstreamBackend(url, dialect="chat", model=model, key=key, extra=extra, seeded=True)
