"""Tools that agents call, and the sandbox in which untrusted code runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from baton.registry import resolve
from baton.team.tools import tool as _tool
from baton.team.tools.agent_python import agent_python_tool
from baton.team.tools.plan import plan_tool
from baton.team.tools.sandbox import python_tool

TOOLS: Mapping[str, _tool.Tool] = {
    "python": python_tool(),
    "python_with_files": agent_python_tool(),
    "plan": plan_tool,
}
"""Tools that any team can have, by name."""


def make_tools(given: Iterable[str | _tool.Tool | Callable[..., Any]]) -> _tool.Registry:
    """A registry of tools that are given as objects, as typed functions, or by name (shipped or of your own)."""
    if isinstance(given, _tool.Registry):
        return given
    return _tool.Registry(map(_made, given))


def _made(given: str | _tool.Tool | Callable[..., Any]) -> _tool.Tool:
    found = resolve("tool", given) if isinstance(given, str) else given
    return found if isinstance(found, _tool.Tool) else _tool.tool(found)
