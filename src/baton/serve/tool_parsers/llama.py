"""Llama 3: `{"name": …, "parameters": {…}}` alone or after `<|python_tag|>`, several with `;` between them; and calls
written as Python, `[name(key=value), …]`, as Llama 3.2 and 4 do.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

from baton.serve.exchange import ToolAsk, ToolOffer
from baton.serve.tool_parsers.tool_form import ReadTools, ToolWords, as_json, json_calls, offered

_TAG = "<|python_tag|>"
_LONGEST = 100_000
"""Characters that are read as Python."""


class LlamaTools:
    """The whole answer is the call; without the tag only tools on offer count."""

    name = "llama"

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:
        text, tag, tagged = said.partition(_TAG)
        body = (tagged if tag else said).strip()
        asked = _in_a_row(body) or _as_python(body)
        if asked and (tag or offered(asked, tools)):
            return ReadTools(text.strip() if tag else "", asked)
        return ReadTools(said, [])

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        listed = "\n".join(map(as_json, tools))
        return (
            f'To use a tool, answer only with {{"name": NAME, "parameters": {{...}}}}. The tools:\n{listed}'
        )

    def write(self, uses: Sequence[ToolAsk]) -> str:
        return "; ".join(
            f'{{"name": {json.dumps(use.name)}, "parameters": {use.arguments or "{}"}}}' for use in uses
        )


def _in_a_row(body: str) -> list[ToolWords] | None:
    """JSON objects one after the other, with `;` or white space between them."""
    asked: list[ToolWords] = []
    decoder = json.JSONDecoder()
    at = 0
    while at < len(body):
        try:
            _, end = decoder.raw_decode(body, at)
        except (ValueError, RecursionError):
            return None
        calls = json_calls(body[at:end])
        if calls is None:
            return None
        asked += calls
        at = end
        while at < len(body) and (body[at] == ";" or body[at].isspace()):
            at += 1
    return asked


def _as_python(body: str) -> list[ToolWords] | None:
    if not body.endswith((")", ")]")) or len(body) > _LONGEST:
        return None
    try:
        tree = ast.parse(body, mode="eval").body
        calls = tree.elts if isinstance(tree, ast.List) else [tree]
        return [_python_call(call) for call in calls]
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _python_call(call: ast.expr) -> ToolWords:
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("not a call with named arguments")
    name = ast.unparse(call.func).removesuffix(".call")  # built-in tools: brave_search.call(query=…)
    arguments = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
    return ToolWords(name, json.dumps(arguments, ensure_ascii=False))
