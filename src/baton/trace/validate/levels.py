"""The levels in order."""

from __future__ import annotations

from baton.trace.validate.meaning import check_meaning
from baton.trace.validate.parts import Parts
from baton.trace.validate.problem import LEVELS, Found, Level
from baton.trace.validate.shape import check_ranges
from baton.trace.validate.structure import check_structure

__all__ = ["check"]


def check(parts: Parts, found: Found, level: Level) -> None:
    """Check well-typed records up to and including a level."""
    depth = LEVELS.index(level)
    check_ranges(parts, found)
    if depth >= 1:
        check_structure(parts, found)
    if depth >= 2:
        check_meaning(parts, found)
