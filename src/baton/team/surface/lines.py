"""One-line commands, for small models.

    spawn ROLE: task          delegate AGENT: task      send AGENT: text
    call TOOL {"json": args}  wait [any|all] [A B]      cancel A B
    aggregate METHOD [A B]    return text               stop answer
    write NAME: text          read [NAME]               (teams with a shared memory)

A return that says how sure it is, from 0 to 1, is `return {"text": "25", "confidence": 0.8}`, with exactly these keys.

A line is a command if its first word is a verb, exactly and in lower case; every other line is
reasoning and is ignored ("Stop here and think" and "wait, no" are prose; "stop here" is a command).
Text with line breaks, or with space at its ends, is written as a JSON string, and so is a name
with spaces or punctuation. Text that only begins like a JSON string is taken as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from baton.team.action import (
    VERBS,
    Action,
    Aggregate,
    CallTool,
    Cancel,
    Delegate,
    ReadShared,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
    WriteShared,
)
from baton.team.surface.parsing import Parsed, ParseError, ToolSpec, clip, decode_json, encode_json, listed

_NAME = re.compile(r'("(?:[^"\\]|\\.)*+")|[^\s:,"{]+')
_PLAIN_NAME = re.compile(r"[\w./#@-]+")
_SEPARATOR = re.compile(r"[\s,]*")

# verb -> (form, what it does, example)
_FORMS: dict[str, tuple[str, str, str]] = {
    "spawn": (
        "spawn ROLE: task",
        "create an agent and give it a task",
        "spawn worker: count the primes below 100",
    ),
    "delegate": (
        "delegate AGENT: task",
        "give a further task to an agent that returned",
        "delegate worker-1: check it again",
    ),
    "send": (
        "send AGENT: text",
        "send text to another agent",
        "send worker-1: the list is sorted",
    ),
    "call": (
        'call TOOL {"name": value}',
        "call a tool with JSON arguments, on one line",
        'call search {"query": "capital of France"}',
    ),
    "wait": (
        "wait [any|all] [AGENT ...]",
        "wait until agents return (none named: all in flight)",
        "wait any worker-1 worker-2",
    ),
    "cancel": (
        "cancel AGENT [AGENT ...]",
        "stop agents and everything they spawned",
        "cancel worker-2",
    ),
    "aggregate": (
        "aggregate METHOD [AGENT ...]",
        "fuse what agents returned (none named: all)",
        "aggregate majority worker-1 worker-2",
    ),
    "return": ("return text", "hand your result to whoever gave you the task", "return there are 25"),
    "stop": ("stop answer", "end the whole run with this answer", "stop 25"),
    "write": (
        "write NAME: text",
        "write in the team's shared memory",
        "write plan: first the primes, then their sum",
    ),
    "read": ("read [NAME]", "read the shared memory (none named: which names there are)", "read plan"),
}


class Lines:
    """The one-line surface."""

    name = "lines"

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        """See `Surface.parse`."""
        found: list[Parsed | ParseError] = []
        offset = 0
        for line in text.split("\n"):
            words = line.split(None, 1)
            if words and (words[0] in VERBS or words[0] in verbs):
                command = line.strip()
                start = offset + line.index(words[0])
                said = _command(words[0], words[1].strip() if len(words) > 1 else "", verbs)
                end = start + len(command)
                found.append(
                    ParseError(said, start, end) if isinstance(said, str) else Parsed(said, start, end)
                )
            offset += len(line) + 1
        if found:
            return found
        message = (
            "There is no command in your answer. Write one per line, beginning with one of these words in "
            f"lower case: {listed(verbs)}.{_example(verbs)}"
        )
        return [ParseError(message, 0, len(text))]

    def render(self, action: Action) -> str:
        """See `Surface.render`."""
        match action:
            case Spawn(role, task):
                return f"spawn {_name(role)}: {_say(task)}"
            case Delegate(agent, task):
                return f"delegate {_name(agent)}: {_say(task)}"
            case Send(agent, text):
                return f"send {_name(agent)}: {_say(text)}"
            case CallTool(tool, args):
                return f"call {_name(tool)} {encode_json(args)}"
            case Wait(agents, mode):
                return " ".join(("wait", *(["any"] if mode == "any" else []), *map(_name, agents)))
            case Cancel(agents):
                return " ".join(("cancel", *map(_name, agents)))
            case Aggregate(method, sources):
                return " ".join(("aggregate", _name(method), *map(_name, sources)))
            case Return(text, None):
                return f"return {encode_json(text) if _is_sure(text) else _say(text)}"
            case Return(text, confidence):
                return f"return {encode_json({'text': text, 'confidence': confidence})}"
            case Stop(answer):
                return f"stop {_say(answer)}"
            case WriteShared(name, text):
                return f"write {_name(name)}: {_say(text)}"
            case ReadShared(name):
                return f"read {_name(name)}" if name else "read"

    def describe(self, verbs: frozenset[str], tools: Sequence[ToolSpec]) -> str:
        """See `Surface.describe`."""
        forms = [(form, does) for verb, (form, does, _) in _FORMS.items() if verb in verbs]
        width = max((len(form) for form, _ in forms), default=0)
        parts = [
            "Act by writing commands, one per line, in lower case; other lines are your own notes. "
            'Write text with line breaks as a JSON string ("first\\nsecond").',
            *(f"  {form:<{width}}  {does}" for form, does in forms),
        ]
        if tools and "call" in verbs:
            parts.append("Tools:")
            parts += [
                f"  {tool.name} {encode_json(tool.schema.get('properties', {}))}  {tool.description}".rstrip()
                for tool in tools
            ]
        return "\n".join(parts)

    def schemas(
        self, verbs: frozenset[str], roles: Sequence[str], tools: Sequence[ToolSpec]
    ) -> tuple[dict[str, Any], ...]:
        """None: a model that writes lines is not offered tool calls."""
        del verbs, roles, tools
        return ()


def _command(verb: str, rest: str, verbs: frozenset[str]) -> Action | str:
    """The action a command line says, or what is wrong with it."""
    if verb not in verbs:
        return f"You may not use {verb!r} here. Use one of: {listed(verbs)}.{_example(verbs)}"
    try:
        rest.encode()
        return _action(verb, rest)
    except UnicodeError:
        reason = "it holds characters that are not valid Unicode"
    except ValueError as error:
        reason = str(error)
    form, _, example = _FORMS[verb]
    given = clip(f"{verb} {rest}".strip())
    return f"Cannot read `{given}`: {reason}. Expected: {form}. For example: {example}"


def _action(verb: str, rest: str) -> Action:
    match verb:
        case "spawn":
            return Spawn(*_addressed(rest, "ROLE"))
        case "delegate":
            return Delegate(*_addressed(rest, "AGENT"))
        case "send":
            return Send(*_addressed(rest, "AGENT"))
        case "call":
            return _call(rest)
        case "wait":
            return _wait(rest)
        case "cancel":
            agents = tuple(_names(rest))
            if not agents:
                raise ValueError("no agent is named")
            return Cancel(agents)
        case "aggregate":
            method, *sources = _names(rest) or [Aggregate().method]
            return Aggregate(method, tuple(sources))
        case "return":
            return _return(rest)
        case "write":
            return WriteShared(*_addressed(rest, "NAME"))
        case "read":
            return _read(rest)
        case _:
            return Stop(_text(rest))


def _addressed(rest: str, what: str) -> tuple[str, str]:
    """`NAME: text`."""
    found = _NAME.match(rest)
    if not found:
        raise ValueError(f"{what} is missing")
    after = rest[found.end() :].lstrip()
    if not after.startswith(":"):
        raise ValueError(f"there is no ':' after {what} {clip(found[0], 40)!r}")
    return _unquote(found), _text(after[1:].strip())


def _call(rest: str) -> CallTool:
    found = _NAME.match(rest)
    if not found:
        raise ValueError("TOOL is missing")
    given = rest[found.end() :].lstrip().removeprefix(":").lstrip()
    if not given:
        return CallTool(_unquote(found))
    try:
        args = decode_json(given)
    except ValueError as error:
        raise ValueError(f"the arguments are not JSON on one line ({error})") from None
    if not isinstance(args, dict):
        raise ValueError("the arguments are not a JSON object")
    return CallTool(_unquote(found), args)


def _wait(rest: str) -> Wait:
    mode: Literal["all", "any"] = "all"
    word = _NAME.match(rest)
    if word and word[0] in ("any", "all"):
        mode = "any" if word[0] == "any" else "all"
        rest = rest[word.end() :]
    return Wait(tuple(_names(rest)), mode)


def _return(rest: str) -> Return:
    if not _is_sure(rest):
        return Return(_text(rest))
    said = decode_json(rest)
    text, confidence = said["text"], said["confidence"]
    if not isinstance(text, str):
        raise ValueError("the text is not a JSON string")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ValueError("the confidence is not a number from 0 to 1")
    return Return(text, float(confidence))


def _read(rest: str) -> ReadShared:
    names = _names(rest)
    if len(names) > 1:
        raise ValueError("more than one name is given")
    return ReadShared(*names)


def _is_sure(rest: str) -> bool:
    """Whether a text is a result with a confidence: a JSON object with these two keys and no other."""
    if not rest.startswith("{"):
        return False
    try:
        said = decode_json(rest)
    except ValueError:
        return False
    return isinstance(said, dict) and said.keys() == {"text", "confidence"}


def _names(rest: str) -> list[str]:
    """Names apart by space or comma."""
    names: list[str] = []
    at = 0
    while at < len(rest):
        at = _SEPARATOR.match(rest, at).end()  # type: ignore[union-attr]  # matches the empty string
        if at == len(rest):
            break
        found = _NAME.match(rest, at)
        if not found:
            raise ValueError(f"{clip(rest[at:], 40)!r} is not a name")
        names.append(_unquote(found))
        at = found.end()
    return names


def _unquote(found: re.Match[str]) -> str:
    return str(decode_json(found[0])) if found[1] else found[0]


def _text(rest: str) -> str:
    if not rest:
        raise ValueError('the text is missing (write "" for none)')
    if rest[0] == '"':
        try:
            value = decode_json(rest)
        except ValueError:
            return rest  # prose that begins with a quotation
        if isinstance(value, str):
            return value
    return rest


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name not in ("any", "all") else encode_json(name)


def _say(text: str) -> str:
    bare = text and text == text.strip() and "\n" not in text and text[0] != '"'
    return text if bare else encode_json(text)


def _example(verbs: frozenset[str]) -> str:
    known = [verb for verb in _FORMS if verb in verbs]
    return f" For example: {_FORMS[known[0]][2]}" if known else ""
