"""`call NAME {…}` on a line of its own: for models whose template knows no tools, down to the smallest.

What stands after the name is a JSON object, nothing, or, for a tool with one parameter that has to be given, that
parameter's value as it is: `call search capital of France`. Only tools on offer count; any other line is text. Calls in
the tags of `hermes` are read too, since many models know those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from baton.serve.exchange import ToolAsk, ToolOffer
from baton.serve.tool_parsers.hermes import HermesTools
from baton.serve.tool_parsers.tool_form import ReadTools, ToolWords

_LINE = re.compile(r"[ \t]*call[ \t]+([\w.\-]+)(?:[ \t]+(.*?))?[ \t]*", re.DOTALL)


class LineTools:
    """One line for each tool."""

    name = "lines"

    def read(self, said: str, tools: Sequence[ToolOffer]) -> ReadTools:
        by_name = {tool.name: tool for tool in tools}
        asked: list[ToolWords] = []
        kept: list[str] = []
        for line in said.split("\n"):
            found = _LINE.fullmatch(line)
            tool = by_name.get(found[1]) if found else None
            arguments = _arguments((found[2] or "") if found else "", tool) if tool else None
            if tool is None or arguments is None:
                kept.append(line)
            else:
                asked.append(ToolWords(tool.name, arguments))
        if not asked:
            return HermesTools().read(said, tools)
        return ReadTools("\n".join(kept).strip(), asked)

    def offer(self, tools: Sequence[ToolOffer]) -> str:
        listed = "\n".join(map(_shown, tools))
        return f"To use a tool, write a line: call NAME {{json}}\nTools:\n{listed}"

    def write(self, uses: Sequence[ToolAsk]) -> str:
        return "\n".join(f"call {use.name} {_one_line(use.arguments)}".rstrip() for use in uses)


class BareTools(LineTools):
    """The same, and the prompt says nothing of tools: for the smallest models, that are trained to use them.

    A list of tools is the longest part of a small program's prompt, and the same in every one; a model that learns from
    rewards learns their names sooner than it learns to read the list.
    """

    name = "bare"

    def offer(self, tools: Sequence[ToolOffer]) -> str:  # noqa: ARG002  # the protocol's
        return ""


def _arguments(rest: str, tool: ToolOffer) -> str | None:
    """What a line gives the tool, as JSON; None: it makes no sense for it."""
    properties = tool.parameters.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    if not rest:
        return "{}"
    if rest.startswith("{"):
        try:
            return rest if isinstance(json.loads(rest), dict) else None
        except (ValueError, RecursionError):
            return None
    required = tool.parameters.get("required")
    named = [name for name in (required if isinstance(required, list) else ()) if name in properties]
    only = named if len(named) == 1 else list(properties)
    if len(only) != 1:
        return None
    return json.dumps({only[0]: _value(rest, properties[only[0]])}, ensure_ascii=False)


def _value(text: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else "string"
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(tool: ToolOffer) -> str:
    properties = tool.parameters.get("properties")
    kinds = properties.items() if isinstance(properties, dict) else ()
    inside = ", ".join(f"{name}: {_kind(schema)}" for name, schema in kinds)
    described = " ".join(tool.description.split())
    return f"{tool.name}({inside})" + (f": {described}" if described else "")


def _kind(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else "any"


def _one_line(arguments: str) -> str:
    """JSON without line breaks; an empty object is left out."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return " ".join(arguments.split())
    return json.dumps(value, ensure_ascii=False) if value else ""
