"""Scripted play on another surface: the commands of the lines surface, written as that one wants them.

What is not a command (notes on the way to a result) stays where it was.
"""

from __future__ import annotations

from collections.abc import Callable

from baton.team.action import EVERY_VERB
from baton.team.protocol import Request
from baton.team.surface import Lines, Parsed, Surface


def translated(play: Callable[[Request], str], surface: Surface) -> Callable[[Request], str]:
    """`play`, which speaks lines, on this surface."""
    if surface.name == "lines":
        return play
    lines = Lines()

    def speak(request: Request) -> str:
        text = play(request)
        said, at = "", 0
        for item in lines.parse(text, frozenset(EVERY_VERB)):
            if isinstance(item, Parsed):
                said += text[at : item.start] + surface.render(item.action)
                at = item.end
        return said + text[at:]

    return speak
