"""Prompts by a tokenizer's chat template: the whole conversation at its start, later only what is new.

The ids of an exchange that an ask grows from are kept as they were read and sampled. What follows them is found by
rendering a short conversation around a stand-in for the answer and taking what comes after it, so nothing that was
sampled is ever encoded again. Where the template itself would now write the beginning in another way (it drops earlier
thoughts, or moves the tools to the last question), the beginning is broken: the conversation is encoded anew, as the
template has it, and `Reply.rules` says so. `thinking="keep"` keeps earlier thoughts whatever the template does.

What messages, tools and schemas say is data: a special token spelled out in them is encoded as its characters
(`baton.engine.template.Encoder`). A template that knows no tools is given them in the system message.
"""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from threading import Lock
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from baton.engine.template import Decoder, Encoder
from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.backends.prompts import Prompt, common_ids, kept_ids, refuse_others, written
from baton.serve.backends.reading import CLOSE_THOUGHT, OPEN_THOUGHT
from baton.serve.exchange import Ask, ToolOffer, Utterance
from baton.serve.tool_parsers import parser_of
from baton.serve.tool_parsers.tool_form import ToolParser
from baton.team.protocol import Answer
from baton.trace.records import Ints

Thinking = Literal["template", "keep"]
Message = dict[str, Any]

_STAND_IN, _THOUGHT = "baton7answer", "baton7thought"
_LONG = 20_000
"""Characters from which text is encoded in a thread of its own, so that other sessions do not wait."""
_EMPTY_THOUGHT = re.compile(
    f"{re.escape(OPEN_THOUGHT)}(?:(?!{re.escape(CLOSE_THOUGHT)}).)*(?:{re.escape(CLOSE_THOUGHT)}\\s*|\\Z)",
    re.DOTALL,
)


class _Safe(Encoder):
    """An encoder of text in which what others wrote was set aside."""

    def data(self, value: Any) -> Any:
        """A value of JSON with every special token in its texts set aside."""
        if isinstance(value, str):
            return self._set_aside(value)
        if isinstance(value, dict):
            return {self._set_aside(str(name)): self.data(each) for name, each in value.items()}
        return [self.data(each) for each in value] if isinstance(value, list | tuple) else value

    def ids_of(self, text: str) -> Ints:
        return self._ids(text, special=False)

    def end_of(self, ids: Ints | None) -> str:
        """The end-of-turn token, if a completion ends with one."""
        return self._marks.get(ids[-1], "") if ids else ""

    @cached_property
    def _marks(self) -> dict[int, str]:
        """Special tokens by id."""
        added = self._tokenizer.added_tokens_decoder
        return {number: str(token) for number, token in added.items() if token.special}

    def without_end(self, rest: str, end: str) -> str:
        """`rest` without the end of the turn before it, if one was sampled; a model may have several."""
        if not end or rest.startswith(end):
            return rest.removeprefix(end)
        other = self._spelled.match(rest)
        return rest[other.end() :] if other else rest


class _Broken(Exception):
    """Why a conversation does not go on from the ids that are kept."""


class _Rest(NamedTuple):
    """What a template writes after an answer."""

    text: str
    thoughts: bool
    """Whether earlier thoughts are in what is kept."""


class TemplatePrompts:
    """A tokenizer with a chat template."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        policy: str,
        parser: ToolParser | None = None,
        thinking: Thinking = "template",
        context: int | None = None,
    ) -> None:
        """`policy`: whose kept ids are of this tokenizer."""
        self.context = context
        self._tokenizer = tokenizer
        self._policy = policy
        self._thinking = thinking
        self._safe = _Safe(tokenizer, None)
        self._decoder = Decoder(tokenizer)
        source = tokenizer.chat_template
        self.parser = parser or parser_of(source)
        text = "\n".join(map(str, source.values())) if isinstance(source, dict) else str(source)
        self._knows_tools = "tools" in text
        self._short_ids = self.parser.name == "mistral"
        """Mistral's templates refuse ids of tool uses that do not have nine characters."""
        self._thought_field = next((name for name in ("reasoning_content", "thinking") if name in text), None)
        self._knows_thoughts = self._thought_field is not None or CLOSE_THOUGHT in text
        self._special = frozenset(tokenizer.all_special_ids) | frozenset(
            number for number, token in tokenizer.added_tokens_decoder.items() if token.special
        )
        self._encoding = Lock()
        """Held while the tokenizer works: it has a switch for special tokens, which two threads must not share."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="baton-encode")

    async def prompt(self, ask: Ask, growth: GrownAsk | None) -> Prompt:
        refuse_others(ask)
        size = sum(len(each.text) for each in (ask.messages if growth is None else growth.new))
        if size < _LONG and self._encoding.acquire(blocking=False):
            try:
                return self._prompt(ask, growth)
            finally:
                self._encoding.release()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._prompt_alone, ask, growth)

    def said(self, answer: Answer) -> tuple[str, Ints | None]:
        """The text, with special tokens that the model set inside of it spelled out: some mark tools."""
        ids, ends = answer.completion_ids, answer.token_ends
        if ids is None or ends is None or self._special.isdisjoint(ids[:-1]):
            return answer.text, ends
        text, shifted, at = "", [], 0
        for place, (token, end) in enumerate(zip(ids, ends, strict=True)):
            text += answer.text[at:end]
            at = end
            if token in self._special and place + 1 < len(ids):
                text += str(self._tokenizer.convert_ids_to_tokens(token))
            shifted.append(len(text))
        return text, Ints(shifted)

    def encode_said(self, message: Utterance) -> tuple[str, Ints] | None:
        """What a model would have sampled to say a message that somebody else wrote: text and ids, without an end mark,
        which the next prompt sets."""
        text = written(message, self.parser)
        with self._encoding:
            return text, self._safe.ids_of(self._safe.data(text))

    def after(self, answer: Answer) -> str:
        whole = self._decoder.decode(list(answer.completion_ids or ()))
        return whole[len(answer.text) :] if whole.startswith(answer.text) else ""

    def _prompt_alone(self, ask: Ask, growth: GrownAsk | None) -> Prompt:
        with self._encoding:
            return self._prompt(ask, growth)

    def _prompt(self, ask: Ask, growth: GrownAsk | None) -> Prompt:
        tools, rules = self._tools(ask)
        kept = kept_ids(growth, self._policy)
        if growth is not None and kept is not None:
            try:
                rest = self._rest(ask, growth, tools)
            except _Broken as why:
                rules["prefix"] = f"broken: {why}"
            else:
                if rest.thoughts:
                    rules["thinking"] = "kept"
                ids = kept + self._safe.ids_of(rest.text)
                return Prompt(ids, (), len(kept), rules, _ends_in_thought(rest.text))
        if any(each.thinking for each in ask.messages):
            rules["thinking"] = (
                "by the template" if self._knows_thoughts else "dropped: it has no place for them"
            )
        text = self._render([self._message(each) for each in ask.messages], tools, ask)
        ids = self._safe.ids_of(text)
        return Prompt(ids, (), 0 if kept is None else common_ids(kept, ids), rules, _ends_in_thought(text))

    def _tools(self, ask: Ask) -> tuple[list[Message] | None, dict[str, str]]:
        """The tools as templates want them, and by which rules."""
        rules: dict[str, str] = {}
        if not ask.tools:
            return None, rules
        told = {tool.name for tool in _told(ask)}
        unknown = [tool.name for tool in ask.tools if tool.name not in told]
        if unknown:
            rules["left_out"] = ", ".join(unknown)
        rules["tools"] = (
            self.parser.name if self._knows_tools else f"{self.parser.name}, in the system message"
        )
        if not self._knows_tools:
            return None, rules
        return [self._offer(tool) for tool in _told(ask)], rules

    def _offer(self, tool: ToolOffer) -> Message:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return {"type": "function", "function": self._safe.data(function)}

    def _message(self, message: Utterance) -> Message:
        made: Message = {"role": message.speaker, "content": message.text}
        if message.speaker == "tool":
            made["tool_call_id"] = self._use_id(message.answers or "")
            made["name"] = message.name or ""
        if message.uses and self._knows_tools:
            made["tool_calls"] = [
                {
                    "id": self._use_id(use.id),
                    "type": "function",
                    "function": {"name": use.name, "arguments": _arguments(use.arguments)},
                }
                for use in message.uses
            ]
        elif message.uses:
            made["content"] = _joined(message.text, self.parser.write(message.uses))
        made = self._safe.data(made)
        if message.thinking:
            made = self._with_thought(made, self._safe.data(message.thinking))
        return made

    def _with_thought(self, message: Message, thought: str) -> Message:
        if self._thought_field is not None:
            return {**message, self._thought_field: thought}
        if CLOSE_THOUGHT not in str(self._tokenizer.chat_template) and self._thinking == "template":
            return message
        return {**message, "content": f"{OPEN_THOUGHT}\n{thought}\n{CLOSE_THOUGHT}\n\n{message['content']}"}

    def _use_id(self, name: str) -> str:
        return (
            blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()[:9]
            if self._short_ids
            else name
        )

    def _rest(self, ask: Ask, growth: GrownAsk, tools: list[Message] | None) -> _Rest:
        """What the template writes between the kept answer and the next one."""
        reply = growth.before.reply
        assert reply is not None
        choice = reply.choices[growth.choice]
        new = [self._message(each) for each in growth.new]
        start: list[Message] = [{"role": "user", "content": "?"}]
        if ask.messages[0].speaker == "system":
            start.insert(0, {"role": "system", "content": "?"})
        thoughts = bool(choice.message.thinking) or reply.rules.get("thinking") == "kept"
        answer: Message = {"role": "assistant", "content": _STAND_IN}
        if thoughts and self._knows_thoughts:
            answer = self._with_thought(answer, _THOUGHT)
        try:
            whole = self._apply_to([*start, answer, *new], tools)
            rest = self._after_stand_in(whole)
        except _Refused:
            rest = self._after_uses(start, choice.message, new, tools)
            whole = ""
        begun = self._apply_to(start, tools)
        if whole:
            self._check_start(whole, begun, thoughts)
        end = self._safe.end_of(choice.completion_ids)
        return _Rest(self._safe.without_end(rest, end), thoughts)

    def _after_stand_in(self, whole: str) -> str:
        _, found, rest = whole.partition(_STAND_IN)  # the first: a new message may hold the word too
        if not found:
            raise _Broken("the template drops earlier answers")
        return rest

    def _after_uses(
        self, start: list[Message], said: Utterance, new: list[Message], tools: list[Message] | None
    ) -> str:
        """For templates that accept a tool's result only after its use."""
        try:
            end = self._after_stand_in(
                self._apply_to([*start, {"role": "assistant", "content": _STAND_IN}], tools, more=False)
            )
            until = [*start, self._message(said)]
            before = self._apply_to(until, tools, more=False)
            whole = self._apply_to([*until, *new], tools)
        except _Refused as error:
            raise _Broken(f"the template refuses to go on: {error}") from None
        if not whole.startswith(before):
            raise _Broken("the template writes earlier answers in another way")
        return end + whole[len(before) :]

    def _check_start(self, whole: str, begun: str, thoughts: bool) -> None:
        """That the template still writes what comes before the answer as it did."""
        if self._thinking == "keep":
            whole, begun = _EMPTY_THOUGHT.sub("", whole), _EMPTY_THOUGHT.sub("", begun)
        elif thoughts and self._knows_thoughts and _THOUGHT not in whole:
            raise _Broken("the template drops earlier thoughts")
        if not whole.startswith(begun) and not _unspaced(whole).startswith(_unspaced(begun)):
            raise _Broken("the template writes the beginning in another way as a conversation grows")

    def _render(self, messages: list[Message], tools: list[Message] | None, ask: Ask) -> str:
        """The whole conversation; one that the template refuses is told it in a plainer form."""
        if tools is None and ask.tools:
            messages = _with_offer(messages, self._safe.data(self.parser.offer(_told(ask))))
        try:
            return self._apply_to(messages, tools)
        except _Refused as error:
            for plainer in (self._as_text(messages), _by_turns(self._as_text(messages))):
                try:
                    return self._apply_to(plainer, tools)
                except _Refused:
                    continue
            raise Unanswerable(f"the model's chat template refused this conversation: {error}") from None

    def _as_text(self, messages: list[Message]) -> list[Message]:
        """Tools asked for as text: some templates take one at a time, or none."""
        plain = []
        for message in messages:
            calls = message.get("tool_calls")
            kept = {name: value for name, value in message.items() if name != "tool_calls"}
            if calls:
                words = [json.dumps(call["function"], ensure_ascii=False) for call in calls]
                kept["content"] = _joined(str(message["content"]), "\n".join(words))
            plain.append(kept)
        return plain

    def _apply_to(self, messages: list[Message], tools: list[Message] | None, *, more: bool = True) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tools=tools, tokenize=False, add_generation_prompt=more
                )
            )
        except Exception as error:  # a template is somebody's program
            raise _Refused(" ".join(str(error).split())[:300] or type(error).__name__) from None


class _Refused(Exception):
    """A template refused a conversation."""


_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def _told(ask: Ask) -> list[ToolOffer]:
    """Tools that a model can be told of: one that takes plain text is given it as `input`; those of one server's own
    have no parameters for others."""
    plain = (
        replace(tool, parameters=_TEXT) if (tool.raw or {}).get("type") == "custom" else tool
        for tool in ask.tools
    )
    return [tool for tool in plain if tool.raw is None or tool.parameters]


def _with_offer(messages: list[Message], offer: str) -> list[Message]:
    if not offer:
        return messages
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": _joined(messages[0]["content"], offer, gap="\n\n")}, *messages[1:]]
    return [{"role": "system", "content": offer}, *messages]


def _by_turns(messages: list[Message]) -> list[Message]:
    """For templates that want user and assistant by turns: what is not the assistant's is the user's."""
    merged: list[Message] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        if merged and merged[-1]["role"] == role:
            merged[-1] = {
                "role": role,
                "content": _joined(merged[-1]["content"], message["content"], gap="\n\n"),
            }
        else:
            merged.append({"role": role, "content": message["content"]})
    return merged


def _joined(one: str, other: str, gap: str = "\n") -> str:
    return gap.join(filter(None, (one, other)))


def _arguments(text: str) -> Any:
    """The object that templates want; a text where it is none."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _unspaced(text: str) -> str:
    """Without white space, in which some templates differ between what was asked and what is past."""
    return "".join(text.split())


def _ends_in_thought(text: str) -> bool:
    return text.rstrip().endswith(OPEN_THOUGHT)
