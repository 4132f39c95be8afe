"""Letters, numbers, words and statements: what is apart is counted, filtered, sorted or searched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from baton.tasks.reasoning.arithmetic import ChainSum
from baton.tasks.reasoning.family import NONE, Family, Solved, halves


def _listed(results: Sequence[str]) -> list[str]:
    """Items of comma-separated results."""
    return [item.strip() for text in results for item in text.split(",") if item.strip() not in ("", NONE)]


def _after_colon(text: str) -> str:
    return text.rpartition(":")[2]


class LetterCounting(Family):
    """How often is a letter in these words?"""

    name = "letter_counting"
    size = 6

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (words have none)
        return {"min_words": size, "max_words": size}

    def units(self, question: str) -> list[str]:
        return _after_colon(question).replace('"', "").rstrip("?").split()

    def split(self, question: str, width: int) -> list[str]:
        letter = self._letter(question)
        return [f'count "{letter}": {" ".join(part)}' for part in halves(self.units(question), width)]

    def work(self, task: str) -> Solved:
        letter = self._letter(task)
        counts = [(word, word.lower().count(letter)) for word in self.units(task)]
        note = ", ".join(f"{word} {count}" for word, count in counts if count)
        return Solved(str(sum(count for _, count in counts)), f"{letter}: {note}" if note else "")

    def join(self, question: str, results: Sequence[str]) -> Solved:
        return ChainSum().join(question, results)

    def code(self, task: str) -> str | None:
        return f"print({' '.join(self.units(task))!r}.lower().count({self._letter(task)!r}))"

    def _letter(self, text: str) -> str:
        found = re.search(r'"(.)"', text)
        return found[1] if found else ""


class NumberFiltering(Family):
    """Keep or remove the numbers larger or smaller than one."""

    name = "number_filtering"
    size = 4

    def settings(self, size: int, digits: int) -> dict[str, Any]:
        most = 10.0**digits - 1
        counts = {"min_numbers": size, "max_numbers": size, "min_decimals": 0, "max_decimals": 0}
        return {**counts, "min_value": -most, "max_value": most}

    def units(self, question: str) -> list[str]:
        return re.findall(r"-?\d+(?:\.\d+)?", _after_colon(question))

    def split(self, question: str, width: int) -> list[str]:
        order = self._order(question)
        return [f"{order}: {', '.join(part)}" for part in halves(self.units(question), width)]

    def work(self, task: str) -> Solved:
        keep, side, bound = self._order(task).split()
        stays = [n for n in self.units(task) if self._holds(float(n), side, float(bound)) == (keep == "keep")]
        return Solved(", ".join(stays) or NONE)

    def join(self, question: str, results: Sequence[str]) -> Solved:  # noqa: ARG002 (needs no question)
        return Solved(str(_listed(results)))

    def alone(self, question: str) -> Solved:
        return self.join(question, [self.work(question).result])

    def _holds(self, number: float, side: str, bound: float) -> bool:
        return number > bound if side == "larger" else number < bound

    def _order(self, text: str) -> str:
        """`remove larger 17`"""
        found = re.search(r"(keep|remove)\D*?(larger|smaller)\D*?(-?\d+(?:\.\d+)?)", text, re.IGNORECASE)
        return f"{found[1].lower()} {found[2]} {found[3]}" if found else "keep larger 0"


class WordSorting(Family):
    """Words in ascending or descending order of their characters' codes."""

    name = "word_sorting"
    size = 4

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (words have none)
        return {"min_words": size, "max_words": size, "min_word_length": 3, "max_word_length": 8}

    def units(self, question: str) -> list[str]:
        return _listed([_after_colon(question)])

    def split(self, question: str, width: int) -> list[str]:
        order = self._order(question)
        return [f"sort {order}: {', '.join(part)}" for part in halves(self.units(question), width)]

    def work(self, task: str) -> Solved:
        return Solved(", ".join(sorted(self.units(task), reverse=self._order(task) == "descending")))

    def join(self, question: str, results: Sequence[str]) -> Solved:
        return Solved(", ".join(sorted(_listed(results), reverse=self._order(question) == "descending")))

    def _order(self, text: str) -> str:
        """The last one named: the question begins by naming both."""
        return "descending" if text.rfind("descending") > text.rfind("ascending") else "ascending"


class NeedleHaystack(Family):
    """Who did it? One of many statements says."""

    name = "needle_haystack"
    size = 6

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (statements have none)
        return {"min_num_statements": size, "max_num_statements": size}

    def units(self, question: str) -> list[str]:
        return re.findall(
            r"([^.?]+)\.", question.split("\nWho")[0].partition("? ")[2] or question.split("\n")[0]
        )

    def named(self, question: str, task: str) -> list[str]:
        return [unit for unit in self.units(question) if unit.strip() in task]

    def split(self, question: str, width: int) -> list[str]:
        parts = halves(self.units(question), width)
        return [f"Who {self._deed(question)}?{''.join(f' {s.strip()}.' for s in part)}" for part in parts]

    def work(self, task: str) -> Solved:
        deed = self._deed(task)
        who = [s.strip().removesuffix(deed).strip() for s in self.units(task) if s.endswith(f" {deed}")]
        return Solved(who[0] if who else NONE)

    def join(self, question: str, results: Sequence[str]) -> Solved:  # noqa: ARG002 (needs no question)
        return Solved(next((who for who in results if who != NONE), NONE))

    def _deed(self, text: str) -> str:
        found = re.search(r"Who ([^?]+)\?", text)
        return found[1] if found else ""
