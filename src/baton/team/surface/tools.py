"""Tool-calling JSON, for chat models: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

The form Hermes and Qwen models are trained on. Text outside the blocks is reasoning. A block may be
fenced as code, may lack its closing tag (servers cut it as a stop string), and may give its
arguments as a JSON string. A completion that is nothing but a JSON object or array of such calls is
read as well. Verbs are called by their names, and so are tools: `{"name": "search", ...}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from baton.team.action import EVERY_VERB, VERBS, Action, CallTool, Cancel
from baton.team.hints import hint_for_agent
from baton.team.surface.parsing import Parsed, ParseError, ToolSpec, clip, decode_json, encode_json, listed

_TAG = re.compile(r"<(/?)tool_call>")
# A block up to its closing tag, where a tag inside a JSON string does not count. Atomic, and
# outside strings it stops at any tag: every character is looked at twice at most, over all blocks.
# (Written as groups: Python 3.11 before .4 reads a possessive quantifier within another one wrongly.)
_BLOCK = re.compile(r'(?>(?:[^"<\\]|"(?>(?:[^"\\]|\\.)*)"|<(?!/?tool_call>))*)(?=</tool_call>)', re.DOTALL)
_FENCE = re.compile(r"\s*```\w*\s*")

_EXAMPLES: dict[str, dict[str, Any]] = {
    "spawn": {"role": "worker", "task": "count the primes below 100"},
    "delegate": {"agent": "worker-1", "task": "check it again"},
    "send": {"agent": "worker-1", "text": "the list is sorted"},
    "call": {"tool": "search", "args": {"query": "capital of France"}},
    "wait": {"agents": ["worker-1"], "mode": "any"},
    "cancel": {"agents": ["worker-2"]},
    "aggregate": {"method": "majority", "sources": ["worker-1", "worker-2"]},
    "return": {"text": "there are 25"},
    "stop": {"answer": "25"},
    "write": {"name": "plan", "text": "first the primes, then their sum"},
    "read": {"name": "plan"},
}


class Tools:
    """The tool-calling surface, for a team whose tools have these names."""

    name = "tools"

    def __init__(self, tools: Iterable[str] = ()) -> None:
        self._tools = frozenset(tools)

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        """See `Surface.parse`."""
        found: list[Parsed | ParseError] = []
        for raw, start, end in _blocks(text) if "<tool_call>" in text else _bare(text):
            said = self._action(raw, verbs)
            found.append(ParseError(said, start, end) if isinstance(said, str) else Parsed(said, start, end))
        if found:
            return found
        message = (
            f"There is no tool call in your answer. Call one of: {self._callable(verbs)}.{_example(verbs)}"
        )
        return [ParseError(message, 0, len(text))]

    def render(self, action: Action) -> str:
        """See `Surface.render`."""
        if isinstance(action, CallTool) and action.tool in self._tools and action.tool not in VERBS:
            return _call(action.tool, action.args)
        arguments = msgspec.to_builtins(action)
        return _call(arguments.pop("verb"), arguments)

    def describe(self, verbs: frozenset[str], tools: Sequence[ToolSpec]) -> str:
        """See `Surface.describe`."""
        offered = [encode_json(schema["function"]) for schema in self.schemas(verbs, (), tools)]
        return "\n".join(
            [
                "Act by calling the functions below; other text is your own notes. For each call write:",
                '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>',
                "<tools>",
                *offered,
                "</tools>",
            ]
        )

    def schemas(
        self, verbs: frozenset[str], roles: Sequence[str], tools: Sequence[ToolSpec]
    ) -> tuple[dict[str, Any], ...]:
        """See `Surface.schemas`. Tools are offered by their own names, not through `call`."""
        offered = [
            _schema(verb, *_verb_schema(verb, roles))
            for verb in EVERY_VERB
            if verb in verbs and verb != "call"
        ]
        if "call" in verbs:
            offered += [_schema(tool.name, tool.description, tool.schema) for tool in tools]
        return tuple(offered)

    def _action(self, raw: str, verbs: frozenset[str]) -> Action | str:
        """The action a JSON block says, or what is wrong with it."""
        try:
            call = decode_json(raw)
        except ValueError as error:
            return f"Your tool call is not valid JSON: {error}. You wrote `{clip(raw)}`.{_example(verbs)}"
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            expected = 'A tool call is a JSON object with "name" and "arguments"'
            return f"{expected}; you wrote `{clip(raw)}`.{_example(verbs)}"
        name, arguments = call["name"], call.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = decode_json(arguments) if arguments.strip() else {}
            except ValueError as error:
                return f"The arguments of {clip(name)!r} are not valid JSON: {error}.{_example(verbs, name)}"
        if not isinstance(arguments, dict):
            return f"The arguments of {clip(name)!r} are not a JSON object.{_example(verbs, name)}"
        return self._convert(name, arguments, verbs)

    def _convert(self, name: str, arguments: dict[str, Any], verbs: frozenset[str]) -> Action | str:
        if name not in VERBS and name not in verbs:
            if name not in self._tools:
                known = (verbs - {"call"}) | self._tools
                return f"There is no function {clip(name)!r}. {hint_for_agent(clip(name), known)}{_example(verbs)}"
            if "call" not in verbs:
                return f"You may not call tools here. Use one of: {listed(verbs)}.{_example(verbs)}"
            return CallTool(name, arguments)
        if name not in verbs:
            return f"You may not use {name!r} here. Use one of: {listed(verbs)}.{_example(verbs)}"
        try:
            action: Action = msgspec.convert(arguments, EVERY_VERB[name])
        except msgspec.ValidationError as error:
            reason = str(error).replace("$.", "").replace("Object", "The call", 1)
            return f"Wrong arguments for {name!r}: {clip(reason, 200)}.{_example(verbs, name)}"
        if isinstance(action, Cancel) and not action.agents:
            return f"Wrong arguments for 'cancel': no agent is named.{_example(verbs, name)}"
        return action

    def _callable(self, verbs: frozenset[str]) -> str:
        return listed(verbs - {"call"} | (self._tools if "call" in verbs else frozenset()))


def _blocks(text: str) -> Iterator[tuple[str, int, int]]:
    """The tagged blocks: JSON, and the span with its tags."""
    tags = [(tag.start(), tag.end(), not tag[1]) for tag in _TAG.finditer(text)]
    at = 0
    for index, (start, inside, opens) in enumerate(tags):
        if not opens or start < at:
            continue
        block = _BLOCK.match(text, inside)
        if block and _is_json(raw := _unfenced(block[0])):
            at = block.end() + len("</tool_call>")
        else:
            # Broken, or cut short: it ends at the next tag, whatever stands between.
            following = tags[index + 1] if index + 1 < len(tags) else (len(text), len(text), True)
            raw = _unfenced(text[inside : following[0]])
            at = following[0] if following[2] else following[1]
        yield raw, start, at


def _bare(text: str) -> Iterator[tuple[str, int, int]]:
    """A text that is one call, or an array of calls, and nothing else."""
    raw = _unfenced(text)
    if not raw.startswith(("{", "[")):
        return
    start = text.index(raw)
    if raw[0] == "[":
        try:
            parts = msgspec.json.decode(raw, type=list[msgspec.Raw])
        except (ValueError, RecursionError):
            pass  # the error is told of the whole text
        else:
            at = 0  # only commas and space stand between the parts, so each is found where it is
            for part in (bytes(part).decode().strip() for part in parts):
                at = raw.index(part, at)
                yield part, start + at, start + at + len(part)
                at += len(part)
            return
    yield raw, start, start + len(raw)


def _unfenced(text: str) -> str:
    """Without the space and the code fence around it."""
    opening = _FENCE.match(text)
    text = text[opening.end() :] if opening else text
    return text.strip().removesuffix("```").rstrip() if opening else text.strip()


def _is_json(raw: str) -> bool:
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _verb_schema(verb: str, roles: Sequence[str]) -> tuple[str, dict[str, Any]]:
    kind = EVERY_VERB[verb]
    _, components = msgspec.json.schema_components([kind])
    schema = msgspec.to_builtins(components[kind.__name__])
    # How sure it is, only a role that is asked for it is told of (see `Harness`).
    hidden = ("verb", "confidence")
    properties = {name: value for name, value in schema["properties"].items() if name not in hidden}
    if verb == "spawn" and roles:
        properties["role"] = {"type": "string", "enum": list(roles)}
    required = [name for name in schema["required"] if name != "verb"]
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return schema["description"], parameters


def _schema(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>{encode_json({'name': name, 'arguments': arguments})}</tool_call>"


def _example(verbs: frozenset[str], verb: str | None = None) -> str:
    known = [verb] if verb in _EXAMPLES else [name for name in _EXAMPLES if name in verbs]
    return f" For example: {_call(known[0], _EXAMPLES[known[0]])}" if known and known[0] else ""
