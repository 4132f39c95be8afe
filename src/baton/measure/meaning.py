"""Whether two texts say the same: redundancy by meaning and not by the letter, without a model.

A text becomes a vector of its words (shortened to their stems) and of the letter runs within them, words that carry
little left out; two texts are as alike as the cosine of their vectors. Numbers and words that deny are compared for
themselves: texts that differ in one of them do not say the same, however alike they are. `alike_from` was
chosen on 40 labelled pairs of messages; on 40 others its errors are those that docs/measures.md prints.

Invariant: symmetric, and no text is unlike itself. What only knowledge of the world can tell ("population of Lima",
"people who live in Lima") it cannot; give an embedding instead (`Meaning(embed=...)`, `baton measure --embed`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from baton.errors import UsageError
from baton.trace.outcome import plain

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Texts -> a vector each, of one length."""
Vector = Mapping[object, float]

_WORD = re.compile(r"\d[\d,.]*\d|\w+")
_NUMBERS = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "first": "1", "second": "2", "third": "3",
}  # fmt: skip
_DENIALS = frozenset({
    "no", "not", "none", "never", "cannot", "without", "neither", "nor", "nothing", "disagree",
})  # fmt: skip
_LITTLE = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "can", "could", "did", "do",
    "does", "for", "from", "had", "has", "have", "he", "her", "his", "i", "if", "in", "into", "is", "it",
    "its", "me", "my", "of", "on", "or", "our", "please", "she", "should", "so", "some", "than", "that",
    "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "up", "was", "we",
    "were", "what", "when", "where", "whether", "which", "while", "who", "will", "with", "would", "you",
    "your", "after", "about", "before", "under", "also", "just", "here",
})  # fmt: skip
_ENDINGS = ("ations", "ation", "ings", "ing", "ions", "ion", "ed", "ies", "es", "s", "e", "y")
_SHORTEST_STEM = 3
_LETTERS = 3
_LETTER_WEIGHT = 0.5
ALIKE_FROM = 0.75
ALIKE_FROM_EMBEDDED = 0.85


class Meaning(Struct, frozen=True, kw_only=True):
    """How texts are compared."""

    alike_from: float | None = None
    """The cosine from which two texts say the same; None: 0.75 of words, 0.85 of an embedding."""
    embed: Embed | None = None
    """Vectors of texts by a model of one's own, in place of words; numbers and denials are not looked at then."""

    def same(self, one: str, two: str) -> bool:
        """Whether a reader of the one learns nothing new from the other."""
        return len(set(self.distinct([one, two]))) == 1

    def similarity(self, one: str, two: str) -> float:
        """Cosine of the two texts' vectors, from -1 (embeddings alone) to 1."""
        return _cosine(*self._vectors([one, two]))

    def distinct(self, texts: Sequence[str]) -> list[int]:
        """For each text, which of the meanings it has, by the order in which they first came up.

        A text has the first meaning whose own first text it is alike enough to.
        """
        usual = ALIKE_FROM if self.embed is None else ALIKE_FROM_EMBEDDED
        enough = usual if self.alike_from is None else self.alike_from
        words: dict[str, int] = {}
        num_meanings = 0
        # Texts are compared only with those that tell the same numbers and denials, which keeps long traces cheap.
        known: dict[object, _Known] = {}
        found = []
        for text, vector in zip(texts, self._vectors(texts), strict=True):
            key = plain(text)
            if key not in words:
                alike = known.setdefault(_told(text) if self.embed is None else None, _Known(enough))
                place = alike.first(vector)
                if place is None:
                    place = num_meanings
                    num_meanings += 1
                    alike.add(place, vector)
                words[key] = place
            found.append(words[key])
        return found

    def _vectors(self, texts: Sequence[str]) -> list[Vector]:
        if self.embed is None or not texts:
            return [_vector(text) for text in texts]
        rows = [list(map(float, row)) for row in self.embed(list(texts))]
        if len(rows) != len(texts) or len({len(row) for row in rows}) > 1:
            sizes = ", ".join(map(str, sorted({len(row) for row in rows}))) or "no"
            raise UsageError(
                f"the embedding gave {len(rows)} vectors of {sizes} numbers for {len(texts)} texts; expected a vector "
                "for each, all of one length."
            )
        return [dict(enumerate(row)) for row in rows]


class _Known:
    """First texts of meanings, found again by what a text that is alike enough must have in common with them.

    Of a text's vector some parts are set aside so that the rest is shorter than `enough` times the whole: the rest
    alone cannot be alike enough to anything, so that whoever is has one of the parts set aside (prefix filtering,
    Bayardo and others 2007). Rare parts are set aside first, so few others are looked at, and n texts cost about n.
    """

    def __init__(self, enough: float) -> None:
        self._enough = enough
        self._vectors: dict[int, Vector] = {}
        self._having: dict[object, list[int]] = {}
        """Part -> the meanings that have it, in their order."""

    def add(self, place: int, vector: Vector) -> None:
        self._vectors[place] = vector
        for part in vector:
            self._having.setdefault(part, []).append(place)

    def first(self, vector: Vector) -> int | None:
        """The first meaning that is alike enough."""
        near: Iterable[int] = self._vectors
        if self._enough > 0:  # otherwise those without anything in common are alike too
            near = sorted({place for part in self._set_aside(vector) for place in self._having.get(part, ())})
        return next((k for k in near if _cosine(self._vectors[k], vector) >= self._enough), None)

    def _set_aside(self, vector: Vector) -> Iterator[object]:
        left = math.fsum(x * x for x in vector.values())
        least = left * self._enough**2 * (1 - 1e-9)  # sums are rounded
        for part in sorted(vector, key=lambda part: len(self._having.get(part, ()))):
            yield part
            left -= vector[part] ** 2
            if left < least:
                return


def _cosine(one: Vector, two: Vector) -> float:
    size = math.sqrt(math.fsum(x * x for x in one.values()) * math.fsum(x * x for x in two.values()))
    if not size:
        return 0.0
    both = math.fsum(value * two[key] for key, value in one.items() if key in two)
    return max(-1.0, min(1.0, both / size))


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    """Words and numbers, in lower case; "1,014", "1014" and "one" as numbers."""
    found = []
    for word in _WORD.findall(text.casefold().replace("n't", " not")):
        number = word.replace(",", "") if word[0].isdigit() else _NUMBERS.get(word, word)
        found.append(number)
    return tuple(found)


def _told(text: str) -> tuple[frozenset[str], bool]:
    """What no likeness of the rest makes up for: the numbers, and whether something is denied."""
    words = _words(text)
    numbers = frozenset(word for word in words if any(letter.isdigit() for letter in word))
    return numbers, any(word in _DENIALS for word in words)


@lru_cache(maxsize=4096)
def _vector(text: str) -> Vector:
    """Stems, each with a weight of 1 + ln(count), and the letter runs of each stem."""
    words = [word for word in _words(text) if word not in _LITTLE] or list(_words(text))
    stems = Counter(_stem(word) for word in words)
    letters = Counter(run for word in stems for run in _runs(word))
    found: dict[object, float] = {("word", word): 1 + math.log(n) for word, n in stems.items()}
    found |= {("run", run): _LETTER_WEIGHT * (1 + math.log(n)) for run, n in letters.items()}
    return found


def _stem(word: str) -> str:
    """The word without the first of the common endings that leaves enough of it."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


def _runs(word: str) -> list[str]:
    closed = f"<{word}>"
    return [closed[k : k + _LETTERS] for k in range(max(1, len(closed) - _LETTERS + 1))]
