"""Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, and since 2025 `[TOOL_CALLS]name[ARGS]{…}` for each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from baton.serve.exchange import ToolAsk, ToolOffer
from baton.serve.tool_parsers.tool_form import ReadTools, ToolWords, as_json, json_calls, offered

_MARK = "[TOOL_CALLS]"
_NAMED = re.compile(r"\s*([\w.\-]+)(?:\[CALL_ID\]\w*)?\[ARGS\](.*)", re.DOTALL)


class MistralTools:
    """A mark, then a list; a bare list counts where every tool in it is on offer."""

    name = "mistral"

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:
        text, mark, rest = said.partition(_MARK)
        if not mark:
            bare = json_calls(said.strip()) if said.lstrip().startswith("[") else None
            return ReadTools("", bare) if bare and offered(bare, tools) else ReadTools(said, [])
        listed = json_calls(_first_value(rest))
        asked = listed if listed is not None else _named(rest)
        return ReadTools(text.strip(), asked) if asked else ReadTools(said, [])

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        listed = "\n".join(map(as_json, tools))
        return (
            f'To use tools, answer with {_MARK}[{{"name": NAME, "arguments": {{...}}}}]. The tools:\n{listed}'
        )

    def write(self, uses: Sequence[ToolAsk]) -> str:
        calls = (f'{{"name": {json.dumps(use.name)}, "arguments": {use.arguments or "{}"}}}' for use in uses)
        return f"{_MARK}[{', '.join(calls)}]"


def _first_value(text: str) -> str:
    """The JSON that a text begins with; all of it where it begins with none."""
    stripped = text.strip()
    try:
        _, end = json.JSONDecoder().raw_decode(stripped)
    except (ValueError, RecursionError):
        return stripped
    return stripped[:end]


def _named(rest: str) -> list[ToolWords]:
    asked = []
    for part in rest.split(_MARK):
        found = _NAMED.fullmatch(part)
        if found is None:
            return []
        asked.append(ToolWords(found[1], found[2].strip()))
    return asked
