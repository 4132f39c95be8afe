"""Whom to hand something to, looked up by description: a choice among hundreds that costs as much as among ten.

Every agent has a card, a few words about it. A policy says what kind of agent it wants, in words, instead of reading
all cards and naming one, so neither what it reads nor what it says grows with their number:

    directory = Directory({"anna": "tailor expert", "ben": "plumber novice", "cleo": "plumber expert"})
    directory.find("plumber-expert")          # ("cleo",)
    directory.find("plumber-able", most=2)    # ("ben", "cleo")

Words count in the order in which they are said: who has the first goes before all who have not, among them who has
the second, and so on; of equals who was listed first. So what is found depends on no counts, and a description means
the same in a team of any size. A word that no card has says nothing. A look-up reads the cards that have the first word
that any card has, and others only where those are fewer than were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from baton.errors import UsageError
from baton.team.tools.tool import Tool, tool

_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> tuple[str, ...]:
    """The words of a card or of a description, each once."""
    return tuple(dict.fromkeys(_WORD.findall(text.lower())))


class Directory:
    """Agents by what their cards say."""

    def __init__(self, cards: Mapping[str, str]) -> None:
        self.cards = dict(cards)
        self._names = list(self.cards)
        self._words = [frozenset(words_of(card)) for card in self.cards.values()]
        self._having: dict[str, list[int]] = {}
        for place, words in enumerate(self._words):
            for word in words:
                self._having.setdefault(word, []).append(place)

    def find(self, wanted: str, most: int = 1) -> tuple[str, ...]:
        """The names of those who fit a description best, at most so many; nobody where no card has a word of it."""
        if most < 1:
            raise UsageError(f"a directory was asked for {most} agents; expected at least 1.")
        said = [word for word in words_of(wanted) if word in self._having]
        found: dict[int, None] = {}
        for number, word in enumerate(said):
            # Who has this word and none before it comes after all who were found.
            new = [place for place in self._having[word] if place not in found]
            rest = said[number + 1 :]
            new.sort(key=lambda place: [other not in self._words[place] for other in rest])
            found.update(dict.fromkeys(new))
            if len(found) >= most:
                break
        return tuple(self._names[place] for place in list(found)[:most])

    def tool(self, name: str = "who", most: int = 3) -> Tool:
        """The look-up as a tool, for teams whose agents are to see whom they may ask."""

        @tool(name=name, pure=True)
        def who(wanted: str) -> str:
            """Who fits a description best: names with what is known of them, best first."""
            return "\n".join(f"{each}: {self.cards[each]}" for each in self.find(wanted, most)) or "nobody"

        return who
