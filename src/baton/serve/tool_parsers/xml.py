"""Qwen Coder: `<tool_call><function=NAME><parameter=KEY>value</parameter>…</function></tool_call>`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from baton.serve.exchange import ToolAsk, ToolOffer
from baton.serve.tool_parsers.tool_form import ReadTools, ToolWords, as_json

_BLOCK = re.compile(
    r"(?:<tool_call>\s*)?<function=([^>\s]+)>(.*?)(?:</function>|\Z)(?:\s*</tool_call>)?", re.DOTALL
)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


class XmlTools:
    """Arguments are text between tags; the tool's schema says which of them are numbers, lists or the like."""

    name = "xml"

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:
        schemas = {tool.name: tool.parameters for tool in tools}
        asked = [_call(block[1], block[2], schemas.get(block[1], {})) for block in _BLOCK.finditer(said)]
        return ReadTools(_BLOCK.sub("", said).strip() if asked else said, asked)

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        listed = "\n".join(map(as_json, tools))
        return (
            "To use a tool, write <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>. "
            f"The tools:\n{listed}"
        )

    def write(self, uses: Sequence[ToolAsk]) -> str:
        return "\n".join(map(_written, uses))


def _call(name: str, body: str, schema: dict[str, Any]) -> ToolWords:
    properties = schema.get("properties")
    kinds = properties if isinstance(properties, dict) else {}
    arguments = {found[1]: _value(found[2], kinds.get(found[1])) for found in _PARAMETER.finditer(body)}
    return ToolWords(name, json.dumps(arguments, ensure_ascii=False))


def _value(text: str, schema: Any) -> Any:
    """A text, unless the schema wants something else and it reads as that."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _written(use: ToolAsk) -> str:
    try:
        arguments = json.loads(use.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    rows = arguments.items() if isinstance(arguments, dict) else ()
    values = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in rows)
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)
    return f"<tool_call>\n<function={use.name}>\n{body}</function>\n</tool_call>"
