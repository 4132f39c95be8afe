"""Surfaces: how actions are written in a completion. `lines` is for small models, `tools` for chat models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from baton.errors import UsageError
from baton.registry import resolve
from baton.team.surface.lines import Lines
from baton.team.surface.parsing import Parsed, ParseError, Surface, ToolSpec
from baton.team.surface.tools import Tools

__all__ = ["SURFACES", "Lines", "ParseError", "Parsed", "Surface", "ToolSpec", "Tools", "make_surface"]

SURFACES: dict[str, Callable[[Any], Surface]] = {"lines": lambda _: Lines(), "tools": Tools}
"""Name -> how to make the surface for a team's tools, which are given by name."""


def make_surface(name: str, tools: Any = ()) -> Surface:
    """The surface that goes by a name, for a team with these tools: shipped, registered, installed or module:attr."""
    found = resolve("surface", name)
    made: Surface = found if hasattr(found, "parse") and not isinstance(found, type) else found(tools)
    if not hasattr(made, "parse"):
        raise UsageError(
            f"surface {name!r} gives a {type(made).__name__}; expected an object with a parse method."
        )
    return made
