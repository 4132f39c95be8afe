"""A folder of plain-text files as documents, and questions that can be asked of any text: which words stand where.

Files are numbered in the order of their names, from 1. They are data: whatever they say is shown to agents as it stands
and never acted on.

Invariant: no word is asked about in both splits: its own hash says which one it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import combinations
from pathlib import Path

import numpy as np

from baton.errors import UsageError
from baton.tasks.task import Split
from baton.tasks.wide.pages import paged
from baton.tasks.wide.questions import words_of

_TEST_SHARE = 4
_MOST_WORDS = 64
"""Whose pairs are looked through."""
_ENDINGS = (".txt", ".md", ".rst", ".text")


class TextFolder:
    """The documents of a folder."""

    def __init__(self, place: str, window: int) -> None:
        self.place = place
        documents = _read(place)
        self.pages = [
            page
            for number, (name, text) in enumerate(documents, start=1)
            for page in paged(text.splitlines() or [""], window, f"document {number}: {name}")
        ]
        self.where: dict[str, list[int]] = {}
        """Word -> the numbers of the documents that have it."""
        for number, (_, text) in enumerate(documents, start=1):
            for word in sorted(words_of(text)):
                self.where.setdefault(word, []).append(number)

    def drawn(self, random: np.random.Generator, kind: str, number: int, split: Split) -> tuple[str, ...]:
        """The words that a question of a kind is about."""
        words = sorted(word for word in self.where if split_of(word) == split)
        if kind == "both":
            return self._pair(random, words, split)
        number = 1 if kind == "documents" else number
        if len(words) < number:
            raise self._too_few(kind, split)
        return tuple(words[int(k)] for k in random.choice(len(words), number, replace=False))

    def _pair(self, random: np.random.Generator, words: Sequence[str], split: Split) -> tuple[str, ...]:
        """Two words that one document alone has both of; words of several documents first, which tell nothing alone."""
        spread = [word for word in words if len(self.where[word]) > 1]
        for among in (spread, words):
            few = [among[int(k)] for k in random.permutation(len(among))[:_MOST_WORDS]]
            for one, other in combinations(few, 2):
                if len(set(self.where[one]) & set(self.where[other])) == 1:
                    return one, other
        raise self._too_few("both", split)

    def _too_few(self, kind: str, split: Split) -> UsageError:
        return UsageError(
            f"the documents of {self.place!r} have too few words for question = {kind!r} in the {split} split. Give "
            "more text, ask about fewer (task.settings.asked), or ask something else (task.settings.question)."
        )


def split_of(word: str) -> Split:
    """Which split a word is asked about in."""
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % _TEST_SHARE == 0 else "train"


def _read(place: str) -> list[tuple[str, str]]:
    """Names and texts, by name. Folders in it, and files that begin with a dot, are left alone."""
    folder = Path(place)
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {place!r}. Give one with plain-text files: task.settings.folder"
        )
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.suffix.lower() in _ENDINGS)
    files = [each for each in files if not each.name.startswith(".")]
    if not files:
        raise UsageError(f"{place!r} holds no plain text. Expected files that end in {', '.join(_ENDINGS)}.")
    return [(_printed(each.name), _text(each)) for each in files]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(
            f"{str(file)!r} is no UTF-8. Save it as UTF-8, or take it out of the folder."
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {str(file)!r}: {error.strerror}.") from None


def _printed(name: str) -> str:
    """A file's name on one line, whatever it is made of."""
    told = name.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() else " " for c in told).split())
