"""A backend that needs no model: a Python function, or a file of rules.

A function gets the `Ask` and returns what to say: a text, a tool as `(name, arguments)`, a list of texts and tools, or
a whole `Utterance` or `Reply`. It may be async; one with a second parameter gets the key that names this call's chance.

    def answer(ask):
        if ask.messages[-1].speaker == "user":
            return ("search", {"query": "capital of France"})
        return "It is " + ask.messages[-1].text

A file of rules has one JSON object a line; the first that fits answers:

    {"when": "capital", "turn": 0, "use": ["search", {"query": "{last}"}]}
    {"system": "researcher", "match": "(?P<city>Paris|Rome)", "say": "It is {city}."}
    {"say": "I do not know."}

Invariant: there is no state, so the same ask under the same key has the same answer.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from baton import registry
from baton.errors import UsageError, nearest
from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.backends.reading import name_uses
from baton.serve.exchange import Ask, Reply, ReplyChoice, Utterance
from baton.serve.growth import how_echoed
from baton.serve.tool_parsers.tool_form import ToolWords
from baton.team.budget import estimate_tokens

ToolUse: TypeAlias = tuple[str, Mapping[str, Any] | str]
Said: TypeAlias = str | ToolUse | Sequence[str | ToolUse] | Utterance | ReplyChoice | Reply


class ScriptedBackend:
    """A function behind the backend's contract."""

    def __init__(self, function: Callable[..., Any], *, name: str = "scripted", version: str = "0") -> None:
        self.name = name
        self._function = function
        self._version = version
        self._takes_key = _takes_key(function)

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        if ask.logprobs:
            raise Unanswerable("a script has no alternatives to its words. Ask without top_logprobs.")
        choices: list[ReplyChoice] = []
        for number in range(ask.n):
            name = key if number == 0 else f"{key}/{number}"
            said = await self._said(ask, name)
            if isinstance(said, Reply):
                return _completed(said, ask, growth)
            choices.append(said if isinstance(said, ReplyChoice) else self._choice(said, ask, name))
        reply = Reply(choices=tuple(choices), policy=self.name, policy_version=self._version)
        return _completed(reply, ask, growth)

    async def close(self) -> None:
        return None

    async def _said(self, ask: Ask, key: str) -> Said:
        given = (ask, key) if self._takes_key else (ask,)
        try:
            said = self._function(*given)
            return await said if inspect.isawaitable(said) else said  # type: ignore[no-any-return]  # checked next
        except (Unanswerable, asyncio.CancelledError):
            raise
        except Exception as error:
            why = f"the script {self.name!r} failed: {type(error).__name__}: {error}"
            raise Unanswerable(why, status=500) from error

    def _choice(self, said: Any, ask: Ask, key: str) -> ReplyChoice:
        message = said if isinstance(said, Utterance) else self._message(said, key)
        text, stop = _stopped(message.text, ask.sampling.stop)
        if stop is not None:
            return ReplyChoice(message=replace(message, text=text, uses=()), finish="stop", stop=stop)
        return ReplyChoice(message=message, finish="tool_calls" if message.uses else "stop")

    def _message(self, said: Any, key: str) -> Utterance:
        parts = [said] if isinstance(said, str) or _is_use(said) else said
        if not isinstance(parts, list | tuple):
            raise self._wrong(said)
        texts = [part for part in parts if isinstance(part, str)]
        asked = [ToolWords(part[0], _arguments(part[1])) for part in parts if _is_use(part)]
        if len(texts) + len(asked) != len(parts):
            raise self._wrong(said)
        return Utterance(speaker="assistant", text="\n".join(texts), uses=name_uses(key, asked))

    def _wrong(self, said: object) -> Unanswerable:
        return Unanswerable(
            f"the script {self.name!r} returned {said!r:.200}. Return a text, a tool as (name, arguments), a list of "
            "those, or an Utterance or Reply.",
            status=500,
        )


def _completed(reply: Reply, ask: Ask, growth: GrownAsk | None) -> Reply:
    """With a bill, which is an estimate, and with how the echo was understood."""
    echo = None if growth is None else how_echoed(ask, growth)
    if echo is not None:
        reply = replace(reply, rules={**reply.rules, "echo": echo})
    if reply.prompt_tokens is not None:
        return reply
    said = "".join(_words(choice.message) for choice in reply.choices)
    return replace(
        reply,
        prompt_tokens=estimate_tokens("".join(map(_words, ask.messages))),
        completion_tokens=estimate_tokens(said),
        estimated=True,
    )


def _words(message: Utterance) -> str:
    if not message.uses:
        return message.thinking + message.text
    return message.thinking + message.text + "".join(use.name + use.arguments for use in message.uses)


def _is_use(part: object) -> bool:
    return (
        isinstance(part, tuple | list)
        and len(part) == 2
        and isinstance(part[0], str)
        and isinstance(part[1], Mapping)
    )


def _arguments(given: Mapping[str, Any] | str) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _stopped(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text up to the first stop string in it, and which one that is."""
    at, stop = min(((text.find(stop), stop) for stop in stops if stop and stop in text), default=(-1, None))
    return (text, None) if stop is None else (text[:at], stop)


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(plain) > 1 and (plain[1].default is plain[1].empty or plain[1].name == "key")


# Rules.


class ScriptRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a rule fits, and what is said then. What is not given does not matter."""

    when: str | tuple[str, ...] = ()
    """Words that the last message holds, capitals or not; of several, all. The system's words after it do not count."""
    match: str | None = None
    """A regular expression found in the last message; `{name}` and `{1}` stand for its groups in what is said."""
    system: str | None = None
    """Words that a system message holds: which agent asks."""
    speaker: Literal["user", "tool", "assistant", "system"] | None = None
    """Whose the last message is."""
    turn: int | None = None
    """How often the assistant has spoken in this conversation."""
    tool: str | None = None
    """A tool that is on offer."""
    model: str | None = None
    say: str = ""
    think: str = ""
    use: tuple[Any, ...] = ()
    """A tool as [name, arguments], or a list of such."""


class RuleScript:
    """The function that a file of rules is."""

    def __init__(self, rules: Sequence[ScriptRule], where: str) -> None:
        self._rules = rules
        self._where = where

    @classmethod
    def load(cls, path: str | Path) -> RuleScript:
        """Read a file of rules; a line that is none is a person's mistake, told with its number."""
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the rules {str(path)!r} cannot be read: {error}.") from None
        rules = [
            _rule(line, f"{path}:{number}")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith(("#", "//"))
        ]
        if not rules:
            raise UsageError(f'{str(path)!r} has no rules. Write a line such as {{"say": "hello"}}.')
        return cls(rules, str(path))

    def __call__(self, ask: Ask, key: str) -> Said:
        last = _last(ask)
        for rule in self._rules:
            words = _fit(rule, ask, ask.messages[-1] if rule.speaker == "system" and ask.messages else last)
            if words is not None:
                uses = [rule.use] if _is_use(rule.use) else rule.use
                parts: list[Any] = [(name, _filled(arguments, words)) for name, arguments in uses]
                asked = [ToolWords(name, _arguments(arguments)) for name, arguments in parts]
                return Utterance(
                    speaker="assistant",
                    text=_filled(rule.say, words),
                    thinking=_filled(rule.think, words),
                    uses=name_uses(key, asked),
                )
        raise Unanswerable(
            f"no rule of {self._where} fits. The last message is the {last.speaker}'s: {last.text!r:.200}. "
            'Add a line such as {"when": "' + _some_words(last.text) + '", "say": "..."}.'
        )


def _rule(line: str, where: str) -> ScriptRule:
    try:
        rule = msgspec.json.decode(line, type=ScriptRule)
    except msgspec.MsgspecError as error:
        unknown = re.search(r"unknown field `(\w+)`", str(error))
        hint = nearest(unknown[1], ScriptRule.__struct_fields__) if unknown else ""
        raise UsageError(f"{where}: {error}. {hint}".rstrip()) from None
    uses = [rule.use] if _is_use(rule.use) else rule.use
    if not all(map(_is_use, uses)):
        raise UsageError(
            f"{where}: use is {list(rule.use)!r:.100}; expected [name, arguments] or a list of them."
        )
    try:
        re.compile(rule.match or "")
    except re.error as error:
        raise UsageError(f"{where}: match is no regular expression: {error}.") from None
    return rule


def _last(ask: Ask) -> Utterance:
    """What was said last. Harnesses put words of the system's after it (Claude Code does): these are no turn."""
    said = (each for each in reversed(ask.messages) if each.speaker != "system")
    return next(said, ask.messages[-1] if ask.messages else Utterance(speaker="user"))


def _fit(rule: ScriptRule, ask: Ask, last: Utterance) -> dict[str, str] | None:
    """What may be filled in, if the rule fits."""
    text = last.text.casefold()
    wanted = (rule.when,) if isinstance(rule.when, str) else rule.when
    system = " ".join(each.text for each in ask.messages if each.speaker == "system").casefold()
    turn = sum(
        each.speaker == "assistant" and (not k or ask.messages[k - 1].speaker != "assistant")
        for k, each in enumerate(ask.messages)
    )
    found = re.search(rule.match, last.text) if rule.match is not None else None
    fits = (
        all(word.casefold() in text for word in wanted)
        and (rule.match is None or found is not None)
        and (rule.system is None or rule.system.casefold() in system)
        and rule.speaker in (None, last.speaker)
        and rule.turn in (None, turn)
        and (rule.tool is None or any(tool.name == rule.tool for tool in ask.tools))
        and rule.model in (None, ask.model)
        and not (rule.use and ask.tool_choice == "none")
    )
    if not fits:
        return None
    groups = {} if found is None else {**_numbered(found), **found.groupdict("")}
    return {"last": last.text, "turn": str(turn), **groups}


def _numbered(found: re.Match[str]) -> dict[str, str]:
    return {str(number): group or "" for number, group in enumerate(found.groups(), 1)}


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    """`{name}` replaced wherever a text holds it; other braces stay."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), value)
    if isinstance(value, dict):
        return {name: _filled(each, words) for name, each in value.items()}
    return [_filled(each, words) for each in value] if isinstance(value, list | tuple) else value


def _some_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text)[:4]) or "..."


def echo(ask: Ask) -> str:
    """Say the last message again."""
    return ask.messages[-1].text if ask.messages else ""


SCRIPTED: dict[str, Callable[[Ask], Said]] = {"echo": echo}


def scripted_backend(rest: str) -> ScriptedBackend:
    """From what stands after `scripted:`: a name, `module:function`, or a file of rules."""
    rest = rest or "echo"
    if rest in SCRIPTED:
        return ScriptedBackend(SCRIPTED[rest], name=rest)
    if Path(rest).suffix in (".jsonl", ".json", ".ndjson"):
        return ScriptedBackend(RuleScript.load(rest), name=Path(rest).stem)
    if not registry.is_reference(rest):
        raise UsageError(
            f"there is no script {rest!r}. {nearest(rest, SCRIPTED)} Or type scripted:module:function, or "
            "scripted:FILE.jsonl for a file of rules."
        )
    function = registry.imported("script", rest)
    if not callable(function):
        raise UsageError(f"script {rest!r} is a {type(function).__name__}; expected a function of an Ask.")
    return ScriptedBackend(function, name=rest)
