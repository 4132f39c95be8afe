"""Judges that are functions, for runs that name them as `scripted:judge_scripts:NAME`."""

from __future__ import annotations

from baton.team.protocol import Request


def by_letters(request: Request) -> str:
    """A number that depends on what was said, so that it can be worked out again."""
    said = request.entries[-1].text.split(" said: ", 1)[1].split("\n\n")[0]
    return f"{sum(map(ord, said)) % 11}"


def speechless(_: Request) -> str:
    return "no comment"
