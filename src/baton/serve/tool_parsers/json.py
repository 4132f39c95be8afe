"""JSON in whatever wrapping: `{"name": …, "arguments": {…}}` or a list of such, bare, in tags or in a code block.

For templates that show tools in a form of their own (Phi, Granite, xLAM and others). Only tools on offer count, and
only where the JSON is the end of what was said, so that a text about JSON stays text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice

from baton.serve.exchange import ToolAsk, ToolOffer
from baton.serve.tool_parsers.hermes import HermesTools
from baton.serve.tool_parsers.llama import LlamaTools
from baton.serve.tool_parsers.tool_form import ReadTools, as_json, json_calls, offered

_WRAPPINGS = (
    "<|tool_call|>", "<tool_call>", "</tool_call>", "<tool_calls>", "</tool_calls>", "functools", "```json", "```",
)  # fmt: skip
_STARTS = 8
"""Brackets that are looked at as the beginning of a call."""


class JsonTools:
    """The last JSON of an answer, if it asks for tools on offer; then what `hermes` and `llama` know."""

    name = "json"

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:
        body = _without_end(said)
        starts = islice((place for place, sign in enumerate(body) if sign in "[{"), _STARTS)
        for start in starts:
            asked = json_calls(body[start:])
            if asked and offered(asked, tools):
                return ReadTools(_without_end(body[:start]), asked)
        for other in (HermesTools(), LlamaTools()):
            read = other.read(said, tools)
            if read.asked:
                return read
        return ReadTools(said, [])

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        listed = "\n".join(map(as_json, tools))
        return f'To use tools, end with [{{"name": NAME, "arguments": {{...}}}}]. The tools:\n{listed}'

    def write(self, uses: Sequence[ToolAsk]) -> str:
        calls = (f'{{"name": {json.dumps(use.name)}, "arguments": {use.arguments or "{}"}}}' for use in uses)
        return f"[{', '.join(calls)}]"


def _without_end(text: str) -> str:
    """A text without white space and wrappings at its end."""
    before = None
    while before != text:
        before, text = text, text.rstrip()
        for each in _WRAPPINGS:
            text = text.removesuffix(each)
    return text
