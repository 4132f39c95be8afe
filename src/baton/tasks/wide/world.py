"""A made-up world: people who live in towns and work for firms, said in documents of a few facts each.

Invariant: no fact is in both splits, whatever the seeds: who and what together say which one it is in, one fact in four
in the test's. So what a model has learned of the facts themselves is of no use in a test. Names of firms end with "co".
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import product
from typing import Final

import numpy as np

from baton.tasks.task import Split
from baton.tasks.wide.questions import LIES, LIVES, WORKS

TOWNS: Final = (
    "rome", "oslo", "bern", "kiev", "lima", "cairo", "delhi", "tokyo",
    "paris", "quito", "seoul", "hanoi", "minsk", "sofia", "tunis", "accra",
)  # fmt: skip
FIRMS: Final = ("altco", "bexco", "corco", "duxco", "emico", "foxco", "gemco", "hubco")
_CONSONANTS = "bdfgklmnprst"
PEOPLE: Final = tuple(map("".join, product(_CONSONANTS, "aeiou", _CONSONANTS)))
"""Three letters each, in an order that has all of them begin alike: a world of few takes them from all over."""
_TEST_SHARE = 4


def people(number: int) -> list[str]:
    """The people of a world with so many."""
    return [PEOPLE[len(PEOPLE) * k // number] for k in range(number)]


def split_of(subject: str, values: Sequence[str], value: str) -> Split:
    """Which split a fact is in. Of four values that follow each other one is a test's, another one for each subject."""
    offset = blake2b(subject.encode(), digest_size=2).digest()[0]
    return "test" if (offset + values.index(value)) % _TEST_SHARE == 0 else "train"


def _drawn(random: np.random.Generator, subject: str, values: Sequence[str], split: Split) -> str:
    open_to = [value for value in values if split_of(subject, values, value) == split]
    return open_to[int(random.integers(len(open_to)))]


def drawn_facts(
    random: np.random.Generator, kind: str, who: Sequence[str], towns: Sequence[str], split: Split, full: bool
) -> list[str]:
    """One line about each of these people and, for the question about firms, about each firm; in any order."""
    at_work = kind == "firm"
    values, verb = (FIRMS, WORKS) if at_work else (towns, LIVES)
    facts = [(each, verb, _drawn(random, each, values, split)) for each in who]
    if at_work:
        facts += [(firm, LIES, _drawn(random, firm, towns, split)) for firm in FIRMS]
    order = random.permutation(len(facts))
    return [_said(*facts[int(k)], full) for k in order]


def _said(subject: str, verb: str, value: str, full: bool) -> str:
    return f"{subject} {verb} {value}." if full else f"{subject} {value}"
