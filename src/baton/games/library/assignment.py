"""O2: tasks to agents of known skill, one each, for the most expected successes.

Optimum: the assignment problem, max over permutations of sum_i skill[i][sigma(i)].
Source: Kuhn, "The Hungarian method", 1955.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State, possible
from baton.games.schedule import assign


class AssignmentGame(Game, frozen=True, kw_only=True):
    """Give each task to one agent, in turn."""

    name: ClassVar[str] = "assignment"
    decisions: ClassVar[tuple[Choice, ...]] = ("delegate",)
    roles: ClassVar[tuple[str, ...]] = ("agent",)

    skills: tuple[tuple[float, ...], ...] = (
        (0.9, 0.8, 0.3, 0.2),
        (0.9, 0.1, 0.5, 0.1),
        (0.7, 0.6, 0.6, 0.5),
        (0.8, 0.7, 0.6, 0.1),
    )
    """skills[task][agent]: chance of success."""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.skills}
        self.require(len(widths) == 1 and 0 not in widths, "skills", "every task needs one skill per agent")
        self.require(len(self.skills) <= max(widths), "skills", "there must be as many agents as tasks")
        self.require(max(widths) <= 16, "skills", "the exact solver takes at most 16 agents")
        probabilities = all(0 <= p <= 1 for row in self.skills for p in row)
        self.require(probabilities, "skills", "a probability lies from 0 to 1")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0, 0)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        task, busy = state
        return tuple(
            f"delegate agent-{j + 1}: task {task + 1}"
            for j in range(len(self.skills[0]))
            if not busy >> j & 1
        )

    def step(self, state: State, option: str) -> Sequence[Branch]:
        task, busy = state
        agent = int(option.partition(":")[0].removeprefix("delegate agent-")) - 1
        after = (task + 1, busy | 1 << agent) if task + 1 < len(self.skills) else OVER
        p = self.skills[task][agent]
        return possible(Branch(p, after, 1.0), Branch(1 - p, after))

    def text(self, state: State) -> str:
        if not state:
            return "over"
        task, busy = state
        free = [j for j in range(len(self.skills[0])) if not busy >> j & 1]
        lines = [
            f"task {i + 1}: " + " ".join(f"agent-{j + 1} {self.skills[i][j]:g}" for j in free)
            for i in range(task, len(self.skills))
        ]
        return "\n".join([*lines, f"who takes task {task + 1}?"])

    def facts(self) -> dict[str, float]:
        return {"value": assign(self.skills)[0]}
