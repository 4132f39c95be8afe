"""Any engine of Baton, or whatever else draws completions for a prompt, as a backend.

Prompts are made by a `PromptMaker` and completions are read by a parser of the model's family. So an engine answers
programs exactly as it answers a team: token in, token out, many sessions in one batch.

Where an answer has to be JSON, or has to use a tool, it is held to that form while it is drawn, where that is possible
(`guided`). Otherwise an answer that does not fit is drawn again, a few times, and the last one is given with what is
wrong with it in `Reply.rules`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from baton.errors import UsageError
from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.backends.json_fit import misfit
from baton.serve.backends.prompts import EntryPrompts, Prompt, PromptMaker
from baton.serve.backends.reading import read_completion
from baton.serve.backends.samplers import EngineSampler, Sampled, Sampler
from baton.serve.exchange import Ask, Finish, Reply, ReplyChoice, Utterance
from baton.serve.growth import how_echoed
from baton.team.budget import estimate_tokens
from baton.team.protocol import Answer, Engine
from baton.trace.records import Ints, Sampling


class EngineOptions(Struct, frozen=True, kw_only=True):
    """How asks are answered, where they do not say."""

    max_tokens: int = 4096
    """For an ask that names no limit."""
    draws: int = 4
    """How often an answer is drawn that has to be JSON or to use a tool, and is not held to it."""
    guided: bool = True
    """Whether such an answer is held to its form while it is drawn."""

    @staticmethod
    def of(given: Mapping[str, str]) -> EngineOptions:
        """What the options of a specification say."""
        text = given.get("max_tokens")
        if text is None:
            return EngineOptions()
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"max_tokens is {text!r}; expected a whole number from 1 on.")
        return EngineOptions(max_tokens=int(text))


class EngineBackend:
    """An engine, or whatever else draws completions, behind the backend's contract."""

    def __init__(
        self,
        engine: Engine | Sampler,
        prompts: PromptMaker | None = None,
        *,
        options: EngineOptions | None = None,
    ) -> None:
        self.name = engine.name
        self._sampler = EngineSampler(engine) if isinstance(engine, Engine) else engine
        if prompts is None and isinstance(engine, Engine):
            prompts = EntryPrompts(engine)
        assert prompts is not None, "what is no engine comes with who makes its prompts"
        self._prompts = prompts
        self._options = options or EngineOptions()

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        if (ask.logprobs or 0) > self._sampler.most_alternatives:
            raise Unanswerable(
                f"{self.name} tells {self._sampler.most_alternatives or 'no'} alternatives of a token, and "
                f"{ask.logprobs} were asked for. Lower top_logprobs."
            )
        prompt = await self._prompts.prompt(ask, growth)
        sampling, cap = self._sampling(ask, prompt)
        names = [key, *(f"{key}/{number}" for number in range(1, ask.n))]
        drawn = await asyncio.gather(
            *(self._drawn(ask, prompt, sampling, name, _draw_key(ask, key, name)) for name in names)
        )
        rules = {**prompt.rules, **cap}
        if growth is not None and (echo := how_echoed(ask, growth)) is not None:
            rules["echo"] = echo
        for each in drawn:
            rules |= each.rules
        answers = [answer for each in drawn for answer in each.answers]
        return _billed(
            Reply(
                choices=tuple(each.choice for each in drawn),
                policy=answers[0].policy,
                policy_version=answers[0].policy_version,
                prompt_ids=prompt.ids,
                keep=prompt.keep,
                rules=rules,
            ),
            prompt,
            answers,
        )

    def encode_said(self, message: Utterance) -> tuple[str, Ints] | None:
        """The text and ids by which the model would have said a message; None: nobody has a tokenizer."""
        found: tuple[str, Ints] | None = getattr(self._prompts, "encode_said", lambda _: None)(message)
        return found

    async def count_tokens(self, ask: Ask) -> int:
        """How many tokens the prompt of an ask has; estimated where nobody has a tokenizer."""
        prompt = await self._prompts.prompt(ask, None)
        if prompt.ids is not None:
            return len(prompt.ids)
        return estimate_tokens("".join(entry.text for entry in prompt.entries))

    async def close(self) -> None:
        await self._sampler.close()

    def _sampling(self, ask: Ask, prompt: Prompt) -> tuple[Sampling, dict[str, str]]:
        """The ask's sampling with a limit that the context has room for."""
        wanted = ask.sampling.max_tokens
        rules: dict[str, str] = {}
        if wanted is None:
            wanted = self._options.max_tokens
            rules["max_tokens"] = f"{wanted}, as nobody asked for another limit"
        if prompt.ids is not None and self._prompts.context is not None:
            room = self._prompts.context - len(prompt.ids)
            if room < 1:
                raise Unanswerable(
                    f"the prompt has {len(prompt.ids)} tokens, and the model's context is {self._prompts.context}. "
                    "Shorten the conversation."
                )
            if room < wanted:
                wanted = room
                rules["max_tokens"] = f"{room}, where the context ends"
        return replace(ask.sampling, max_tokens=wanted), rules

    async def _drawn(self, ask: Ask, prompt: Prompt, sampling: Sampling, name: str, draw_key: str) -> _Drawn:
        """One answer, called `name`; drawn again where it does not fit."""
        wanted = _wanted(ask)
        answers: list[Answer] = []
        for draw in range(self._options.draws if wanted else 1):
            named = replace(sampling, key=f"{draw_key}/again{draw}" if draw else draw_key)
            sampled = await self._sampler.sample(ask, prompt, named)
            answers.append(sampled.answer)
            choice, rules = self._choice(ask, prompt, sampled, name)
            wrong = wanted(choice) if wanted else None
            form = sampled.form
            if wrong is None or (form is not None and form.grammar is not None):
                break
        if wanted:
            times = f"draw {len(answers)} of at most {self._options.draws}"
            if form is not None:
                times = f"held to {form.why}" if form.grammar is not None else f"{times}, free: {form.why}"
            rules["drawn"] = times if wrong is None else f"{times}: {wrong}"
        return _Drawn(choice, rules, answers)

    def _choice(
        self, ask: Ask, prompt: Prompt, sampled: Sampled, name: str
    ) -> tuple[ReplyChoice, dict[str, str]]:
        answer = sampled.answer
        said, ends = self._prompts.said(answer)
        read = read_completion(
            said,
            ask,
            key=name,
            finish=_finish(answer.finish_reason),
            parser=self._prompts.parser,
            in_thought=prompt.in_thought,
        )
        beyond = self._prompts.after(answer) if ask.sampling.stop else ""
        choice = ReplyChoice(
            message=read.message,
            finish=read.finish,
            stop=next((stop for stop in ask.sampling.stop if stop and beyond.startswith(stop)), None),
            said=said,
            completion_ids=answer.completion_ids,
            logprobs=answer.logprobs,
            token_ends=ends,
            alternatives=sampled.alternatives,
            versions=answer.versions,
        )
        return choice, read.rules


class _Drawn(NamedTuple):
    """What was drawn for one of the answers asked for."""

    choice: ReplyChoice
    rules: dict[str, str]
    answers: list[Answer]
    """All that were drawn: each is paid for."""


def _draw_key(ask: Ask, key: str, name: str) -> str:
    """What names the chance of an answer. With a seed of the program's, that and the session: so it hears the same
    when it asks the same, and its runs under a fixed seed do not all say the same."""
    if ask.seed is None:
        return name
    return f"{key.rpartition('/')[0]}/seed{ask.seed}{name.removeprefix(key)}"


def _wanted(ask: Ask) -> Callable[[ReplyChoice], str | None] | None:
    """What tells that an answer is not what was asked for; None: anything is."""
    if ask.tools and ask.tool_choice == "required":
        return lambda choice: None if choice.message.uses else "no tool was asked for"
    if ask.tools and ask.tool_choice.startswith("tool:"):
        name = ask.tool_choice.removeprefix("tool:")
        return lambda choice: (
            None if any(use.name == name for use in choice.message.uses) else f"{name} was not asked for"
        )
    if ask.json or ask.json_schema is not None:
        return lambda choice: None if choice.message.uses else _not_json(choice.message.text, ask)
    return None


def _not_json(text: str, ask: Ask) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is no JSON ({error})"
    if ask.json_schema is None:
        return None if isinstance(value, dict) else "it is no JSON object"
    return misfit(value, ask.json_schema)


def _finish(reason: str) -> Finish:
    return "length" if reason == "length" else "content_filter" if reason == "content_filter" else "stop"


def _billed(reply: Reply, prompt: Prompt, answers: Sequence[Answer]) -> Reply:
    """With what it cost: every draw, and the prompt once."""
    first = answers[0]
    known = first.prompt_tokens is not None and all(each.completion_tokens is not None for each in answers)
    if known:
        spent = sum(each.completion_tokens or 0 for each in answers)
        prompted: int | None = first.prompt_tokens
    elif prompt.ids is not None and all(each.completion_ids is not None for each in answers):
        spent = sum(len(each.completion_ids or ()) for each in answers)
        prompted = len(prompt.ids)
    else:
        spent = sum(estimate_tokens(each.text) for each in answers)
        prompted = estimate_tokens("".join(entry.text for entry in prompt.entries))
    return replace(
        reply,
        prompt_tokens=prompted,
        completion_tokens=spent,
        estimated=first.estimated or not (known or prompt.ids is not None),
    )
