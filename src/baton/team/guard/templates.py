"""Planned arguments with places left open: `Hotel: {hotel}` is planned, what stands for `{hotel}` is filled in later.

A user often says how a text is to be put before anybody knows what goes into it. Whoever plans the call says the same
template; what is filled in must come from where that argument may come from.

Invariant: a value fits in one way at most. A place takes as few letters as it can, so two that stand side by side, with
nothing between them, fit nothing.
"""

from __future__ import annotations

import re
from typing import Any

_PLACE = re.compile(r"\{[A-Za-z_][\w ]*\}")
_LONGEST = 10_000


def is_template(planned: Any) -> bool:
    """Whether a planned argument has places left open."""
    return isinstance(planned, str) and _PLACE.search(planned) is not None


def fixed_parts(planned: str) -> list[str]:
    """The words of a template around and between its places."""
    return _PLACE.split(planned)


def filled_in(planned: str, given: Any) -> list[str] | None:
    """What stands for the places of a template; None: the value does not fit it."""
    if not isinstance(given, str) or len(given) > _LONGEST:
        return None
    fixed = fixed_parts(planned)
    if any(not part for part in fixed[1:-1]) or not given.startswith(fixed[0]):
        return None
    found: list[str] = []
    at = len(fixed[0])
    for part in fixed[1:-1]:
        end = given.find(part, at)
        if end < 0:
            return None
        found.append(given[at:end])
        at = end + len(part)
    last = len(given) - len(fixed[-1])
    if last < at or not given.endswith(fixed[-1]):
        return None
    return [*found, given[at:last]]
