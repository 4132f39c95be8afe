"""What an agent is told of a name it got wrong.

Agents read it, so it is part of the harness: a trace is replayed, and a policy goes on learning, only where the words
stay the same. What people read (`baton.errors.nearest`) is free to get better.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def hint_for_agent(given: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest right one, or all of them."""
    names = sorted(known)
    close = get_close_matches(given, names, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Expected one of: {', '.join(names)}."
