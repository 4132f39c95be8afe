"""Pages: documents cut into what one agent can read at a time, and how a reader asks for them one after the other.

A page has at most as many words as the window; words are runs of anything but space. What `read` gives back repeats the
question, the notes that the reader made and the pages that are left, so a reader that keeps nothing but the latest has
all that it needs, and never more than one page of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
_SHOWN = re.compile(r"(.*?)\n(?:notes (.*?)\n)?then (\S+)\n(.*)", re.DOTALL)


class Range(NamedTuple):
    """Pages from a first to a last, counted from 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def range_of(text: str) -> Range | None:
    """`3-8`, or `3`; None: it is neither."""
    found = _RANGE.fullmatch(text)
    if not found:
        return None
    first = int(found[1])
    last = int(found[2] or first)
    return Range(first, last) if 1 <= first <= last else None


def parts(whole: Range, each: int) -> list[Range]:
    """The same pages, so many at a time."""
    return [
        Range(first, min(first + each - 1, whole.last)) for first in range(whole.first, whole.last + 1, each)
    ]


def paged(lines: Iterable[str], window: int, title: str = "") -> Iterator[str]:
    """A document as pages, cut between lines; a line that is longer than a page is cut between words.

    The title heads each of them, and its words count.
    """
    room = max(1, window - len(title.split()))
    held: list[str] = []
    words = 0
    for line in _short_lines(lines, room):
        size = len(line.split())
        if held and words + size > room:
            yield _page(title, held)
            held, words = [], 0
        held.append(line)
        words += size
    if held:
        yield _page(title, held)


def _short_lines(lines: Iterable[str], room: int) -> Iterator[str]:
    for line in lines:
        words = line.split()
        for at in range(0, len(words), room):
            yield " ".join(words[at : at + room])


def _page(title: str, lines: Sequence[str]) -> str:
    return "\n".join([*([title] if title else []), *lines])


class Shown(NamedTuple):
    """What a reader sees of one page."""

    question: str
    notes: str
    left: Range | None
    """The pages that are still to be read."""
    page: str

    def __str__(self) -> str:
        notes = f"notes {self.notes}\n" if self.notes else ""
        return f"{self.question}\n{notes}then {self.left or 'end'}\n{self.page}"


def shown_in(text: str) -> Shown | None:
    """What was shown, read again from its text; None: it is something else, such as an error."""
    found = _SHOWN.fullmatch(text)
    return found and Shown(found[1], found[2] or "", range_of(found[3]), found[4])
