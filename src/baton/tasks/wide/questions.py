"""Kinds of question: what a page tells about one, how notes of several pages go together, and what answer they give.

Notes are one line of words. `found` reads one page and nothing else, so that whoever reads any pages in any order and
puts the notes together has the answer: that is what makes a question splittable. All is read from texts, as an agent
reads them; nothing here knows the world that the texts were made from.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

NONE = "none"
"""Notes of pages that tell nothing, and the answer where nothing is known."""
WORD = re.compile(r"[^\W\d_]{3,}")
"""A word of a document: three letters or more."""
_TITLE = re.compile(r"document (\d+):")


class QuestionKind(ABC):
    """One kind of question about some words."""

    name: ClassVar[str]
    """Short questions begin with it."""
    asks: ClassVar[str]
    """The question in full; {} stands for what is asked about."""

    def text(self, asked: Sequence[str], *, full: bool) -> str:
        words = " ".join(asked)
        return self.asks.format(words) if full else f"{self.name} {words}"

    def asked(self, question: str) -> tuple[str, ...] | None:
        """What a question of this kind asks about; None: it is of another kind."""
        before, after = self.asks.split("{}")
        for start, end in ((before, after), (f"{self.name} ", "")):
            if question.startswith(start) and question.endswith(end):
                return tuple(question[len(start) : len(question) - len(end)].split())
        return None

    @abstractmethod
    def found(self, asked: Sequence[str], page: str) -> str:
        """What one page tells."""

    @abstractmethod
    def answer(self, asked: Sequence[str], notes: str) -> str:
        """The answer from the notes of all pages."""

    def joined(self, notes: Iterable[str]) -> str:
        """Notes of several pages as one: every pair of words once, in the order in which they came."""
        pairs = dict.fromkeys(pair for each in notes for pair in pairs_of(each))
        return " ".join(f"{one} {other}" for one, other in pairs) or NONE


def pairs_of(notes: str) -> list[tuple[str, str]]:
    words = notes.split()
    return list(zip(words[::2], words[1::2], strict=False))


def facts(page: str, verb: str) -> list[tuple[str, str]]:
    """Lines such as `ann rome` or `ann VERB rome.`, as pairs."""
    found = []
    for line in page.split("\n"):
        words = line.removesuffix(".").replace(f" {verb} ", " ", 1).split()
        if len(words) == 2:
            found.append((words[0], words[1]))
    return found


LIVES, WORKS, LIES = "lives in", "works for", "is in"


class WhereTable(QuestionKind):
    """A table to fill: where does each of some people live?"""

    name = "where"
    asks = "Where does each of these people live: {}? Answer with the towns alone, in this order."

    def found(self, asked: Sequence[str], page: str) -> str:
        return self.joined(f"{who} {town}" for who, town in facts(page, LIVES) if who in asked)

    def answer(self, asked: Sequence[str], notes: str) -> str:
        towns = dict(pairs_of(notes))
        return " ".join(towns.get(who, NONE) for who in asked)


class PeopleCount(QuestionKind):
    """A count: how many people live in a town?"""

    name = "count"
    asks = "How many people live in {}? Answer with the number alone."

    def found(self, asked: Sequence[str], page: str) -> str:
        return str(sum(town in asked for _, town in facts(page, LIVES)))

    def joined(self, notes: Iterable[str]) -> str:
        return str(sum(int(each) for each in notes if re.fullmatch(r"\d{1,9}", each)))

    def answer(self, asked: Sequence[str], notes: str) -> str:  # noqa: ARG002 (a number is a number)
        return self.joined([notes])


class FirmJoin(QuestionKind):
    """A join: in which town is the firm of each of some people? Who works where and which firm is where stand apart."""

    name = "firm"
    asks = (
        "In which town is the firm of each of these people: {}? Answer with the towns alone, in this order."
    )

    def found(self, asked: Sequence[str], page: str) -> str:
        people = [(who, firm) for who, firm in facts(page, WORKS) if who in asked]
        places = [(firm, town) for firm, town in facts(page, LIES) if firm.endswith("co")]
        return self.joined(f"{one} {other}" for one, other in dict.fromkeys([*people, *places]))

    def answer(self, asked: Sequence[str], notes: str) -> str:
        known = dict(pairs_of(notes))
        return " ".join(known.get(known.get(who, ""), NONE) for who in asked)


def words_of(text: str) -> set[str]:
    """The words of a text, without case."""
    return {word.casefold() for word in WORD.findall(text)}


class InDocuments(QuestionKind):
    """Which words stand in which numbered documents: what a folder's questions are made of."""

    def found(self, asked: Sequence[str], page: str) -> str:
        title, _, text = page.partition("\n")
        number = _TITLE.match(title)
        words = words_of(text)
        return self.joined(f"{word} {number[1]}" for word in asked if number and word in words)

    def places(self, notes: str, word: str) -> list[int]:
        return sorted({int(place) for each, place in pairs_of(notes) if each == word and place.isdecimal()})


class FirstTable(InDocuments):
    """A table to fill: which document is the first that has each of some words?"""

    name = "first"
    asks = (
        "Which is the first document with each of these words: {}? Answer with their numbers, in this order."
    )

    def answer(self, asked: Sequence[str], notes: str) -> str:
        return " ".join(str(min(self.places(notes, word), default=NONE)) for word in asked)


class DocumentCount(InDocuments):
    """A count: how many documents have a word?"""

    name = "documents"
    asks = "How many documents have the word {}? Answer with the number alone."

    def answer(self, asked: Sequence[str], notes: str) -> str:
        return str(len(self.places(notes, asked[0]))) if asked else NONE


class BothJoin(InDocuments):
    """A join: which document has both of two words, perhaps on different pages?"""

    name = "both"
    asks = "Which document has both of these words: {}? Answer with its number alone."

    def answer(self, asked: Sequence[str], notes: str) -> str:
        both = set.intersection(*(set(self.places(notes, word)) for word in asked)) if asked else set()
        return " ".join(map(str, sorted(both))) or NONE


KINDS: dict[str, QuestionKind] = {
    kind.name: kind
    for kind in (WhereTable(), PeopleCount(), FirmJoin(), FirstTable(), DocumentCount(), BothJoin())
}


def kind_of(question: str) -> tuple[QuestionKind, tuple[str, ...]] | None:
    """The kind of a question and what it asks about, from its text; None: somebody else's question."""
    for kind in KINDS.values():
        if (asked := kind.asked(question)) is not None:
            return kind, asked
    return None
