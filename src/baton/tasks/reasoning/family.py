"""What a family of reasoning-gym problems is to a team: how hard, what it splits into, how it is worked.

The generator and the verifier are the package's own. What is here reads the text of a question or a subtask,
as an agent would, and nothing else; it is what scripted play and the check of a split are made of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

NONE = "none"
"""A worker's result that holds nothing."""


class Solved(NamedTuple):
    """A result, and what one writes down on the way to it."""

    result: str
    note: str = ""


class Family(ABC):
    """One of the package's generators."""

    name: ClassVar[str]
    splittable: ClassVar[bool] = True
    size: ClassVar[int]
    """How many terms, words, ... a problem has unless told otherwise."""
    least: ClassVar[int] = 2
    """The smallest size there is."""

    @abstractmethod
    def settings(self, size: int, digits: int) -> dict[str, Any]:
        """The settings of the generator for problems of this size."""

    def alone(self, question: str) -> Solved:
        """The answer, without a team: by default that of one worker who is given the whole question."""
        return self.work(question)

    def units(self, question: str) -> list[str]:  # noqa: ARG002 (a sequential problem has none)
        """The smallest parts, in order."""
        return []

    def named(self, question: str, task: str) -> list[str]:  # noqa: ARG002 (most subtasks read like questions)
        """The units that a subtask's text asks for, in its order."""
        return self.units(task)

    def split(self, question: str, width: int) -> list[str]:
        """Subtasks for so many workers."""
        raise NotImplementedError

    def work(self, task: str) -> Solved:
        """What a worker makes of a subtask."""
        raise NotImplementedError

    def join(self, question: str, results: Sequence[str]) -> Solved:
        """The answer from the workers' results, in the order of their subtasks."""
        raise NotImplementedError

    def code(self, task: str) -> str | None:  # noqa: ARG002 (not every subtask is worth a program)
        """A program that prints what a worker returns."""
        return None


def halves(units: Sequence[str], width: int) -> list[list[str]]:
    """Runs of nearly equal length, at most `width` and none empty."""
    width = max(1, min(width, len(units)))
    cuts = [len(units) * k // width for k in range(width + 1)]
    return [list(units[a:b]) for a, b in pairwise(cuts)]


def run_of(units: Sequence[str], named: Sequence[str]) -> set[int]:
    """Which units a text names: from each word on the longest stretch that fits.

    Where a stretch fits at several places, it is the first at a multiple of its length, as an even split has
    it. The same stretch said twice is one place twice, since a text does not say which of them it means.
    """
    found: set[int] = set()
    at = 0
    while at < len(named):
        lengths = [_common(units, start, named, at, found) for start in range(len(units))]
        best = max(lengths, default=0)
        if best:
            places = [start for start, length in enumerate(lengths) if length == best]
            place = next((start for start in places if start % best == 0), places[0])
            found |= set(range(place, place + best))
        at += max(1, best)
    return found


def _common(units: Sequence[str], start: int, named: Sequence[str], at: int, taken: set[int]) -> int:
    """For how many words the units from `start` on are the words from `at` on."""
    length = 0
    for k, word in zip(range(start, len(units)), named[at:], strict=False):
        if k in taken or units[k] != word:
            break
        length += 1
    return length
