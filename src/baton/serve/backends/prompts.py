"""From an ask to a prompt: as the context entries of an engine, or (`template_prompts`) by a chat template.

Invariant: where an ask grows from an earlier exchange, that one's ids are kept as they were read and sampled, and only
what is new is encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.exchange import Ask, Utterance
from baton.serve.tool_parsers import PARSERS
from baton.serve.tool_parsers.tool_form import ToolParser
from baton.team.protocol import Answer, Engine, Entry
from baton.trace.records import Ints


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

    def encode_said(self, message: Utterance) -> tuple[str, Ints] | None:
        """A message that somebody else wrote, as text and ids; None: there is no tokenizer."""
        if self._tokenizer is None:
            return None
        text = written(message, self.parser)
        return text, Ints(self._tokenizer.encode(text, add_special_tokens=False))

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

    def _entry(self, message: Utterance) -> Entry:
        text = message.text
        if message.uses:
            text = "\n".join(filter(None, (text, self.parser.write(message.uses))))
        return Entry(message.speaker, text)


def written(message: Utterance, parser: ToolParser) -> str:
    """An answer as a model of this family says it, tools after the words."""
    tools = parser.write(message.uses) if message.uses else ""
    return "\n".join(filter(None, (message.text, tools)))


def with_offer(entries: Sequence[Entry], offer: str) -> list[Entry]:
    """The tools' offer after the system's words, or as these."""
    if not offer:
        return list(entries)
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


def common_ids(one: Ints, other: Ints) -> int:
    """How many ids two rows begin with alike."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(one.numpy()[:shorter] != other.numpy()[:shorter])
    return int(differ[0]) if len(differ) else shorter


def _last_answer(growth: GrownAsk) -> Answer:
    assert growth.before.reply is not None
    choice = growth.before.reply.choices[growth.choice]
    return Answer(text=choice.said or "", policy="", completion_ids=choice.completion_ids)
