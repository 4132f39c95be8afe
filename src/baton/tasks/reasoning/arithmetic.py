"""Sums, products and primes: what is apart is added or multiplied up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from baton.tasks.reasoning.family import Family, Solved, halves

_SIGNED = re.compile(r"([+-]?)\s*(\d+)")
_NUMBER = re.compile(r"-?\d{1,18}")
_MOST = 10_000
"""Numbers of one range: a model may ask a scripted worker for any."""


def _numbers(texts: Sequence[str]) -> list[int]:
    """What workers returned; one that returned no number counts for nothing."""
    found = [_NUMBER.search(text) for text in texts]
    return [int(match[0]) for match in found if match]


class ChainSum(Family):
    """4 - 1 - 7 + 7"""

    name = "chain_sum"
    size = 4

    def settings(self, size: int, digits: int) -> dict[str, Any]:
        return {"min_terms": size, "max_terms": size, "min_digits": digits, "max_digits": digits}

    def units(self, question: str) -> list[str]:
        return [f"{sign or '+'}{number}" for sign, number in _SIGNED.findall(_expression(question))]

    def split(self, question: str, width: int) -> list[str]:
        units = self.units(question)
        return [_chained(part) for part in halves(units, min(width, len(units) // 2))]

    def work(self, task: str) -> Solved:
        return Solved(str(sum(map(int, self.units(task)))))

    def join(self, question: str, results: Sequence[str]) -> Solved:  # noqa: ARG002 (needs no question)
        numbers = _numbers(results)
        total = str(sum(numbers))
        chain = _chained([f"{n:+d}" for n in numbers])
        return Solved(total, f"{chain} = {total}" if len(numbers) > 1 else "")

    def code(self, task: str) -> str | None:
        return f"print({_chained(self.units(task))})"


def _expression(text: str) -> str:
    return text.rpartition(":")[2]


def _chained(terms: Sequence[str]) -> str:
    """`4 - 1`, `-7 + 7`."""
    first, *rest = terms
    return " ".join([first.removeprefix("+"), *(f"{term[0]} {term[1:]}" for term in rest)])


class Products(Family):
    """4 * 1 * 3 * 2"""

    name = "products"
    size = 4

    def settings(self, size: int, digits: int) -> dict[str, Any]:
        return {"min_terms": size, "max_terms": size, "min_digits": digits, "max_digits": digits}

    def units(self, question: str) -> list[str]:
        return re.findall(r"\d+", question)

    def split(self, question: str, width: int) -> list[str]:
        units = self.units(question)
        return [" * ".join(part) for part in halves(units, min(width, len(units) // 2))]

    def work(self, task: str) -> Solved:
        return Solved(str(prod(map(int, self.units(task)))))

    def join(self, question: str, results: Sequence[str]) -> Solved:  # noqa: ARG002 (needs no question)
        numbers = _numbers(results)
        total = str(prod(numbers))
        return Solved(total, f"{' * '.join(map(str, numbers))} = {total}" if len(numbers) > 1 else "")

    def code(self, task: str) -> str | None:
        return f"print({' * '.join(self.units(task))})"


class CountPrimes(Family):
    """How many primes from 9 to 45? A unit is one number; size is tens of numbers."""

    name = "count_primes"
    size = 3
    least = 1

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (a range has no digits)
        return {"min_n": 1, "max_n": 10 * size}

    def units(self, question: str) -> list[str]:
        found = re.search(r"(\d{1,9})\s*(?:and|to|-)\s*(\d{1,9})", question)
        if not found:
            return []
        first, last = int(found[1]), int(found[2])
        return [str(n) for n in range(first, min(last, first + _MOST) + 1)]

    def split(self, question: str, width: int) -> list[str]:
        return [f"primes from {part[0]} to {part[-1]}" for part in halves(self.units(question), width)]

    def work(self, task: str) -> Solved:
        primes = [n for n in map(int, self.units(task)) if n > 1 and all(n % d for d in range(2, n))]
        return Solved(str(len(primes)), " ".join(map(str, primes)))

    def join(self, question: str, results: Sequence[str]) -> Solved:
        return ChainSum().join(question, results)

    def code(self, task: str) -> str | None:
        units = self.units(task)
        if not units:
            return None
        rule = "n > 1 and all(n % d for d in range(2, n))"
        return f"print(sum({rule} for n in range({units[0]}, {int(units[-1]) + 1})))"
