"""The levels in order."""

from __future__ import annotations

from baton.trace.validation.meaning import check_meaning
from baton.trace.validation.parts import Parts
from baton.trace.validation.problem import Found
from baton.trace.validation.shape import check_ranges
from baton.trace.validation.structure import check_structure


def check(parts: Parts, found: Found, *, whole: bool = True) -> None:
    """Check well-typed records. In a trace that is not whole, only one by one."""
    check_ranges(parts, found)
    if whole and "structure" in found.levels:
        check_structure(parts, found)
    if whole and "meaning" in found.levels:
        check_meaning(parts, found)
