"""Any engine of Baton as a backend.

Prompts are made by a `PromptMaker`: from a tokenizer's chat template (`template_prompts`), or as the engine's own
context entries (`EntryPrompts` here). Completions are read by a parser of the model's family. So an engine answers
programs exactly as it answers a team: token in, token out, many sessions in one batch.

Where an answer has to be JSON, or has to use a tool, nothing constrains the engine's sampling: an answer that does not
fit is drawn again, a few times, and the last one is given with what is wrong with it in `Reply.rules`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.backends.json_fit import misfit
from baton.serve.backends.reading import Read, read_completion
from baton.serve.exchange import Ask, Finish, Reply, ReplyChoice
from baton.serve.growth import how_echoed
from baton.serve.tool_parsers import PARSERS
from baton.serve.tool_parsers.tool_form import ToolParser
from baton.team.budget import estimate_tokens
from baton.team.protocol import MODEL_FAILED, Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Ints, Sampling


class Prompt(NamedTuple):
    """A prompt, made."""

    ids: Ints | None
    """None: the engine has no tokenizer, and reads `entries`."""
    entries: Sequence[Entry]
    keep: int
    """How many ids are those of the exchange it grows from, as they were."""
    rules: dict[str, str]
    in_thought: bool = False
    """It ends inside a thought."""


class PromptMaker(Protocol):
    """Makes prompts of asks."""

    parser: ToolParser
    context: int | None
    """How many tokens a prompt and its completion may have; None: not known."""

    async def prompt(self, ask: Ask, growth: GrownAsk | None) -> Prompt:
        """Raises `Unanswerable` where the ask has something that the model cannot be told."""
        ...

    def said(self, answer: Answer) -> tuple[str, Ints | None]:
        """The completion with every mark that the model set, and where each token ends in it."""
        ...

    def after(self, answer: Answer) -> str:
        """What was drawn beyond the answer's text: the stop string, if one ended it."""
        ...


class EngineOptions(Struct, frozen=True, kw_only=True):
    """How asks are answered, where they do not say."""

    max_tokens: int = 4096
    """For an ask that names no limit."""
    draws: int = 4
    """How often an answer is drawn that has to be JSON or to use a tool."""


class EntryPrompts:
    """Prompts as context entries: for engines without a chat template that knows tools."""

    def __init__(
        self,
        engine: Engine,
        parser: ToolParser | None = None,
        *,
        context: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.parser = parser or PARSERS["lines"]
        self.context = context
        self._engine = engine
        self._tokenizer = tokenizer

    async def prompt(self, ask: Ask, growth: GrownAsk | None) -> Prompt:
        refuse_others(ask)
        rules = {"tools": self.parser.name} if ask.tools else {}
        entries = self._entries(ask)
        kept = kept_ids(growth, self._engine.name)
        if growth is not None and kept is not None:
            new = self._engine.encode([self._entry(each) for each in growth.new], _last_answer(growth))
            if new is not None:
                return Prompt(kept + new, entries, len(kept), rules)
        return Prompt(self._engine.encode(entries, None), entries, 0, rules)

    def said(self, answer: Answer) -> tuple[str, Ints | None]:
        return answer.text, answer.token_ends

    def after(self, answer: Answer) -> str:
        if self._tokenizer is None or answer.completion_ids is None:
            return ""
        whole = str(self._tokenizer.decode(list(answer.completion_ids), skip_special_tokens=True))
        return whole[len(answer.text) :] if whole.startswith(answer.text) else ""

    def _entries(self, ask: Ask) -> list[Entry]:
        entries = list(map(self._entry, ask.messages))
        if not ask.tools:
            return entries
        return with_offer(entries, self.parser.offer(ask.tools))

    def _entry(self, message: Any) -> Entry:
        text = message.text
        if message.uses:
            text = "\n".join(filter(None, (text, self.parser.write(message.uses))))
        return Entry(message.speaker, text)


def with_offer(entries: Sequence[Entry], offer: str) -> list[Entry]:
    """The tools' offer after the system's words, or as these."""
    if entries and entries[0].speaker == "system":
        first = Entry("system", f"{entries[0].text}\n\n{offer}" if entries[0].text else offer)
        return [first, *entries[1:]]
    return [Entry("system", offer), *entries]


def refuse_others(ask: Ask) -> None:
    """A model of text is told nothing of pictures and files, and whoever sent them should know."""
    for message in ask.messages:
        for part in message.others:
            kind = part.get("type", "something")
            raise Unanswerable(
                f"the model reads text; a message holds a part of type {kind!r}. Leave it out."
            )


def kept_ids(growth: GrownAsk | None, policy: str) -> Ints | None:
    """Prompt and completion of the exchange that an ask grows from, if both are known and this policy's own."""
    reply = None if growth is None else growth.before.reply
    if growth is None or reply is None or reply.prompt_ids is None or reply.policy != policy:
        return None
    completion = reply.choices[growth.choice].completion_ids
    return None if completion is None else reply.prompt_ids + completion


def _last_answer(growth: GrownAsk) -> Answer:
    assert growth.before.reply is not None
    choice = growth.before.reply.choices[growth.choice]
    return Answer(text=choice.said or "", policy="", completion_ids=choice.completion_ids)


class EngineBackend:
    """An engine behind the backend's contract."""

    def __init__(
        self,
        engine: Engine,
        prompts: PromptMaker | None = None,
        *,
        options: EngineOptions | None = None,
        close: Callable[[], Any] | None = None,
    ) -> None:
        self.name = engine.name
        self.engine = engine
        self._prompts = prompts or EntryPrompts(engine)
        self._options = options or EngineOptions()
        self._close = close

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        if ask.logprobs:
            raise Unanswerable(
                f"{self.name} gives the log-probability of each token and of no alternative. Ask with top_logprobs 0."
            )
        prompt = await self._prompts.prompt(ask, growth)
        sampling, cap = self._sampling(ask, prompt)
        keys = _draw_keys(ask, key)
        drawn = await asyncio.gather(*(self._drawn(ask, prompt, sampling, name) for name in keys))
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

    async def count_tokens(self, ask: Ask) -> int:
        """How many tokens the prompt of an ask has; estimated where nobody has a tokenizer."""
        prompt = await self._prompts.prompt(ask, None)
        if prompt.ids is not None:
            return len(prompt.ids)
        return estimate_tokens("".join(entry.text for entry in prompt.entries))

    async def close(self) -> None:
        closing = self._close or getattr(self.engine, "close", None)
        done = closing() if closing is not None else None
        if asyncio.iscoroutine(done):
            await done

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

    async def _drawn(self, ask: Ask, prompt: Prompt, sampling: Sampling, key: str) -> _Drawn:
        """One answer; drawn again where it does not fit."""
        wanted = _wanted(ask)
        answers: list[Answer] = []
        for draw in range(self._options.draws if wanted else 1):
            answer = await self._answer(
                ask, prompt, replace(sampling, key=f"{key}/again{draw}" if draw else key)
            )
            answers.append(answer)
            choice, rules = self._choice(ask, prompt, answer, key)
            wrong = wanted(choice) if wanted else None
            if wrong is None:
                break
        if wanted:
            times = f"draw {len(answers)} of at most {self._options.draws}"
            rules["drawn"] = times if wrong is None else f"{times}: {wrong}"
        return _Drawn(choice, rules, answers)

    def _choice(
        self, ask: Ask, prompt: Prompt, answer: Answer, key: str
    ) -> tuple[ReplyChoice, dict[str, str]]:
        said, ends = self._prompts.said(answer)
        finish = _finish(answer.finish_reason)
        read: Read = read_completion(
            said, ask, key=key, finish=finish, parser=self._prompts.parser, in_thought=prompt.in_thought
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
        )
        return choice, read.rules

    async def _answer(self, ask: Ask, prompt: Prompt, sampling: Sampling) -> Answer:
        request = Request(
            call=sampling.key or "",
            agent=ask.model,
            role=ask.model,
            entries=prompt.entries,
            prompt_ids=prompt.ids,
            sampling=sampling,
        )
        try:
            (answer,) = await self.engine.answer([request])
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the contract: Unanswerable and nothing else
            answer = EngineError(f"{type(error).__name__}: {error}")
        if isinstance(answer, EngineError):
            broken = str(answer).startswith(MODEL_FAILED)
            raise Unanswerable(f"{self.name} did not answer: {answer}", status=500 if broken else 502)
        return answer


class _Drawn(NamedTuple):
    """What was drawn for one of the answers asked for."""

    choice: ReplyChoice
    rules: dict[str, str]
    answers: list[Answer]
    """All that were drawn: each is paid for."""


def _draw_keys(ask: Ask, key: str) -> list[str]:
    """A key for each answer. With a seed of the program's, one key for all asks of the session: that is what it wants.

    The session's own part stays in it: runs of one program under a fixed seed would otherwise all say the same.
    """
    if ask.seed is not None:
        key = f"{key.rpartition('/')[0]}/seed{ask.seed}"
    return [key, *(f"{key}/{number}" for number in range(1, ask.n))]


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
