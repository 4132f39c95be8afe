"""From a completion to an answer: thoughts and tools are read out of what was said, and tool uses get their ids.

Invariant: ids of tool uses derive from the exchange's key and from what was asked for, so the same program run again
hears the same ids, and no two of a session are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from baton.serve.exchange import Ask, Finish, ToolAsk, Utterance
from baton.serve.tool_parsers.tool_form import ToolParser, ToolWords

OPEN_THOUGHT, CLOSE_THOUGHT = "<think>", "</think>"


class Read(NamedTuple):
    """A completion, read."""

    message: Utterance
    finish: Finish
    rules: dict[str, str]
    """How it was read, where that is worth telling."""


def read_completion(
    said: str, ask: Ask, *, key: str, finish: Finish, parser: ToolParser, in_thought: bool = False
) -> Read:
    """`in_thought`: the prompt ended inside a thought, so its opening mark is not in the completion."""
    thinking, text = split_thought(said, in_thought=in_thought)
    rules: dict[str, str] = {}
    if not ask.tools or ask.tool_choice == "none":
        return Read(Utterance(speaker="assistant", text=text, thinking=thinking), finish, rules)
    left, asked = parser.read(text, ask.tools)
    if len(asked) > 1 and not ask.parallel:
        rules["parallel"] = f"the first of {len(asked)} tools"
        asked = asked[:1]
    uses = name_uses(key, asked)
    message = Utterance(speaker="assistant", text=left, thinking=thinking, uses=uses)
    return Read(message, "tool_calls" if uses and finish == "stop" else finish, rules)


def split_thought(said: str, *, in_thought: bool = False) -> tuple[str, str]:
    """The thought that a completion begins with, and what comes after it. One that is cut off has nothing after it."""
    head = said.lstrip()
    if head.startswith(OPEN_THOUGHT):
        head = head[len(OPEN_THOUGHT) :]
    elif not in_thought:
        return "", said
    thought, _, text = head.partition(CLOSE_THOUGHT)
    return thought.strip(), text.lstrip()


def name_uses(key: str, asked: Sequence[ToolWords]) -> tuple[ToolAsk, ...]:
    """Tool uses with their ids."""
    return tuple(
        ToolAsk(id=use_id(key, place, each), name=each.name, arguments=each.arguments)
        for place, each in enumerate(asked)
    )


def use_id(key: str, place: int, asked: ToolWords) -> str:
    """`call_` and 24 hex digits."""
    content = "\0".join((key, str(place), asked.name, asked.arguments))
    return "call_" + blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
