"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen 2.5 and 3, SmolLM3 and many others."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from baton.serve.exchange import ToolAsk, ToolOffer
from baton.serve.tool_parsers.tool_form import ReadTools, ToolWords, as_json, json_calls

_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


class HermesTools:
    """JSON between tags; the last tag may be missing, since some models stop before it."""

    name = "hermes"

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:  # noqa: ARG002  # the protocol's
        asked: list[ToolWords] = []
        kept, at = [], 0
        for block in _BLOCK.finditer(said):
            calls = json_calls(block[1])
            if calls is not None:
                asked += calls
                kept.append(said[at : block.start()])
                at = block.end()
        kept.append(said[at:])
        return ReadTools("".join(kept).strip() if asked else said, asked)

    def around(self, name: str) -> tuple[str, str]:
        """What stands before and after the arguments of one use, for who can hold a model to it."""
        return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": ', "}\n</tool_call>"

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        listed = "\n".join(map(as_json, tools))
        return (
            'To use a tool, write <tool_call>{"name": NAME, "arguments": {...}}</tool_call>. '
            f"The tools:\n{listed}"
        )

    def write(self, uses: Sequence[ToolAsk]) -> str:
        return "\n".join(
            f'<tool_call>{{"name": {json.dumps(use.name)}, "arguments": {use.arguments or "{}"}}}</tool_call>'
            for use in uses
        )
