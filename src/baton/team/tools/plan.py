"""The tool by which an agent says which calls will be made, while it has read nothing that strangers wrote.

By itself it does nothing: a guard (`baton.team.guard`) takes note of what is planned."""

from __future__ import annotations

from typing import Any

from baton.team.tools.tool import Tool, tool

PLAN = "plan"


@tool(name=PLAN, pure=True, instant=True)
def _plan(calls: list[dict[str, Any]]) -> str:
    """Say which calls will be made, before you read what others wrote. Each is {"tool": NAME, "arguments": {...}},
    with the arguments that you know; a call that comes more than once also has "times": N."""
    return f"planned {len(calls)}"


plan_tool: Tool = _plan


def is_plan(tool: Tool) -> bool:
    """Whether a tool is this one. Another of its name is a tool like any, whose calls a guard judges."""
    return tool.function is plan_tool.function
