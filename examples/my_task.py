"""A task of your own: instances from a seed, tools, a verifier, and a solver where there is one.

A seed names an instance for good; draw from the generator you are given and from nothing else. The
verifier reads the answer, which may be any text at all, and must not raise.

Type: python examples/my_task.py
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from baton.engine.scripted import ScriptedEngine
from baton.tasks.task import Instance, Task
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Team
from baton.team.tools.tool import Tool, tool
from baton.team.topology import make_topology
from baton.testing import check_task


class Hotter(Task):
    """Find a number by asking whether it is higher or lower."""

    name: ClassVar[str] = "hotter"

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        hidden = int(random.integers(1, 1_000_001))
        return "A number from 1 to 1000000 is hidden. Find it.", hidden, None

    def tools(self, instance: Instance) -> Sequence[Tool]:
        @tool(pure=True, instant=True)
        def guess(number: int) -> str:
            """Is the hidden number higher, lower, or this one?"""
            if number == instance.gold:
                return "this one"
            return "higher" if number < instance.gold else "lower"

        return (guess,)

    def verify(self, instance: Instance, answer: str) -> float:
        return float(answer.strip() == str(instance.gold))

    def solve(self, instance: Instance) -> str | None:
        return str(instance.gold)


def halving(request: Request) -> str:
    """Guesses the middle of what is left."""
    low, high = 1, 1_000_000
    for entry in request.entries:
        if entry.speaker == "tool":
            middle = (low + high) // 2
            if entry.text.endswith("this one"):
                return f"stop {middle}"
            low, high = (middle + 1, high) if entry.text.endswith("higher") else (low, middle - 1)
    return f'call guess {{"number": {(low + high) // 2}}}'


if __name__ == "__main__":
    task = Hotter()
    check_task(task)
    for seed in range(3):
        assignment = task.assignment(task.instance(seed, "test"))
        shape = make_topology("centralized", tools=tuple(assignment.tools))
        team = Team.of(shape, ScriptedEngine("halving", halving), tools=assignment.tools, seed=seed)
        trace = asyncio.run(run(team, assignment))
        print(assignment.task_id, f"{len(trace.calls)} calls, reward {trace.rewards[0].value:g}")
