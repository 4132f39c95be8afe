"""Modulo grids: which rule f(x, y) mod d = t made the pattern? The rules are apart, so workers try some each.

A grid is written to a worker as rows of 0, 1 and ? (unknown). Several rules may fit what is known and differ in
what is not; scripted play takes the first, so it is not always right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from baton.tasks.reasoning.family import NONE, Family, Solved, halves

_RULES: dict[str, Callable[[int, int], int]] = {
    "sum": lambda x, y: x + y,
    "diff": lambda x, y: abs(x - y),
    "prod": lambda x, y: x * y,
    "pow": lambda x, y: x**y,
}
_CELLS = {"✅": "1", "❌": "0", "❔": "?"}
_MOST = 8


class ModuloGrid(Family):
    """Fill in the unknown cells; size is the side of the grid."""

    name = "modulo_grid"
    size = 6
    least = 6

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (a grid has none)
        return {"size_x": size, "size_y": size, "max_divisor": _MOST, "max_target": _MOST, "max_holes": 1}

    def units(self, question: str) -> list[str]:  # noqa: ARG002 (always the same)
        return list(_RULES)

    def named(self, question: str, task: str) -> list[str]:
        return [rule for rule in self.units(question) if re.search(rf"\b{rule}\b", task)]

    def split(self, question: str, width: int) -> list[str]:
        rows = "/".join(_rows(question))
        return [f"{' '.join(part)}: {rows}" for part in halves(self.units(question), width)]

    def work(self, task: str) -> Solved:
        rules, _, grid = task.rpartition(": ")
        rows = grid.split("/")
        for rule in rules.split():
            if rule in _RULES and (found := _fitted(rows, _RULES[rule])):
                return Solved("/".join(found), f"{rule} fits")
        return Solved(NONE)

    def join(self, question: str, results: Sequence[str]) -> Solved:
        filled = next((text for text in results if text != NONE), "/".join(_rows(question)))
        back = {code: cell for cell, code in _CELLS.items()}
        return Solved("\n".join("".join(back.get(code, code) for code in row) for row in filled.split("/")))

    def alone(self, question: str) -> Solved:
        return self.join(question, [self.work(self.split(question, 1)[0]).result])


def _rows(question: str) -> list[str]:
    lines = [line for line in question.splitlines() if line and set(line) <= set(_CELLS)]
    return ["".join(_CELLS[cell] for cell in line) for line in lines]


def _fitted(rows: Sequence[str], rule: Callable[[int, int], int]) -> list[str] | None:
    """The rows filled in, if some divisor and target make all that is known of them."""
    known = [
        (rule(x, y), cell == "1") for y, row in enumerate(rows) for x, cell in enumerate(row) if cell != "?"
    ]
    for divisor in range(1, _MOST + 1):
        for target in range(1, _MOST + 1):
            if all((value % divisor == target) == on for value, on in known):
                return [
                    "".join("01"[rule(x, y) % divisor == target] for x in range(len(row)))
                    for y, row in enumerate(rows)
                ]
    return None
