"""Controls: problems whose steps hang on each other, so that splitting them gains nothing. One agent solves them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from baton.tasks.reasoning.family import Family, Solved

State = TypeVar("State", bound=Hashable)


class CourseSchedule(Family):
    """Can all courses be taken? Only if no course waits for itself."""

    name = "course_schedule"
    splittable = False
    size = 4
    least = 3

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (a schedule has none)
        return {"min_num_courses": size, "max_num_courses": size, "max_cycle_length": max(3, size - 1)}

    def alone(self, question: str) -> Solved:
        needs: dict[str, set[str]] = {}
        for course, first in re.findall(r"\((\d+), (\d+)\)", question):
            needs.setdefault(course, set()).add(first)
        while ready := [course for course, firsts in needs.items() if not firsts & needs.keys()]:
            for course in ready:
                del needs[course]
        return Solved(str(not needs))


class ShortestPath(Family):
    """Through a grid; size is its side."""

    name = "shortest_path"
    splittable = False
    size = 3

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (a grid has none)
        return {"min_rows": size, "max_rows": size, "min_cols": size, "max_cols": size}

    def alone(self, question: str) -> Solved:
        cells = {
            (y, x): cell
            for y, line in enumerate(re.findall(r"^[*#OX](?: [*#OX])+$", question, re.MULTILINE))
            for x, cell in enumerate(line.split())
        }
        moves = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

        def steps(at: tuple[int, int]) -> Iterable[tuple[str, tuple[int, int]]]:
            for name, (down, right) in moves.items():
                to = (at[0] + down, at[1] + right)
                if cells.get(to, "X") != "X":
                    yield name, to

        start = next((at for at, cell in cells.items() if cell == "*"), (0, 0))
        path = _shortest(start, steps, lambda at: cells.get(at) == "#")
        return Solved("infeasible" if path is None else " ".join(path))


class TowerOfHanoi(Family):
    """Disks from peg to peg; size is the most disks."""

    name = "tower_of_hanoi"
    splittable = False
    size = 3

    def settings(self, size: int, digits: int) -> dict[str, Any]:  # noqa: ARG002 (a tower has none)
        return {"min_disks": 2, "max_disks": size, "min_pegs": 3, "max_pegs": 4}

    def alone(self, question: str) -> Solved:
        disks, pegs, start, target = map(int, re.findall(r"\d+", question)[:4])

        def steps(state: tuple[int, ...]) -> Iterable[tuple[str, tuple[int, ...]]]:
            for disk, peg in enumerate(state):
                if peg in state[:disk]:
                    continue  # a smaller one lies on it
                for to in range(1, pegs + 1):
                    if to != peg and to not in state[:disk]:
                        yield f"Move disk {disk + 1} from Peg {peg} to Peg {to}", (
                            *state[:disk], to, *state[disk + 1 :],
                        )  # fmt: skip

        path = _shortest((start,) * disks, steps, lambda state: set(state) == {target})
        return Solved("\n".join(path or ()))


def _shortest(
    start: State, steps: Callable[[State], Iterable[tuple[str, State]]], done: Callable[[State], bool]
) -> list[str] | None:
    """Breadth first."""
    came: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if done(state):
            path = []
            while (before := came[state]) is not None:
                state, name = before
                path.append(name)
            return path[::-1]
        for name, to in steps(state):
            if to not in came:
                came[to] = (state, name)
                queue.append(to)
    return None
