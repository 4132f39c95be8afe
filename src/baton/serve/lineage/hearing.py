"""Whose answer stands in whose prompt, where no tool carried it: agents that the program lets hear each other.

A message that is an answer, whole, was said to whoever is shown it. An answer that stands inside a longer text was put
there by the program. Both are found by the words that answers begin with, so the time is that of reading all prompts.
"""

from __future__ import annotations

from msgspec import Struct

from baton.serve.lineage.askers import Askers
from baton.serve.lineage.reading import plain, texts
from baton.serve.lineage.words import SHORT, windows

AS_MESSAGE = "its answer is, word for word, a message in the prompt of the other"
INSIDE = "its answer stands in the prompt of the other"


class ShownAnswer(Struct, frozen=True):
    """An answer and the ask that shows it to another agent."""

    said: int
    """Place of the exchange that gave the answer."""
    heard: int
    whole: bool
    """The answer is a message of its own."""


def overheard(askers: Askers) -> list[ShownAnswer]:
    """Each answer once for each agent that is shown it, where it is shown first."""
    found: dict[tuple[int, int], ShownAnswer] = {}
    by_start: dict[str, list[int]] = {}
    answers: dict[int, str] = {}
    for one in askers.heard:
        life = askers.life(one.place).number
        for text in texts(one.new, "user", "system"):
            standing = _standing_in(text, by_start, answers)
            for said in standing:
                if askers.life(said).number != life:
                    whole = _is_whole(answers[said], text, [answers[other] for other in standing])
                    pair = ShownAnswer(said=said, heard=one.place, whole=whole)
                    found.setdefault((said, life), pair)
        if one.said is not None and not one.said.uses and len(answer := plain(one.said.text)) >= SHORT:
            answers[one.place] = answer
            by_start.setdefault(windows(answer)[0], []).append(one.place)
    return sorted(found.values(), key=lambda pair: (pair.heard, pair.said))


def _standing_in(text: str, by_start: dict[str, list[int]], answers: dict[int, str]) -> list[int]:
    """Of equal answers the latest."""
    found: dict[str, int] = {}
    words = text.split()
    for size in range(1, 5):
        for at in range(len(words) - size + 1):
            for place in by_start.get(" ".join(words[at : at + size]), ()):
                if answers[place] in text:
                    found[answers[place]] = place
    return list(found.values())


def _is_whole(answer: str, text: str, standing: list[str]) -> bool:
    """All of a message, but for the name of who said it; answers one after another are put together by the program."""
    if not text.endswith(answer) or len(text) - len(answer) > 40:
        return False
    before = text[: -len(answer)]
    return not any(other in before for other in standing)
