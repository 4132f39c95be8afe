"""Surfaces: how actions are written in a completion. `lines` for small models, `tools` for chat models."""

from __future__ import annotations

from baton.team.surface.lines import Lines
from baton.team.surface.parsing import Parsed, ParseError, Surface, ToolSpec
from baton.team.surface.tools import Tools

__all__ = ["Lines", "ParseError", "Parsed", "Surface", "ToolSpec", "Tools"]
