"""A task of your own: instances from a seed, tools, a verifier, a solver and scripted play where there are such.

A seed names an instance for good; draw from the generator you are given and from nothing else. The verifier reads the
answer, which may be any text at all, and must not raise. Small models start from the scripted play.

    baton run my_task:Hotter --set task.highest=64 --policy reference --out runs/hotter
"""

from typing import Any

import numpy as np

import baton
from baton.tasks.task import Instance
from baton.team.protocol import Request
from baton.testing import check_task


class Hotter(baton.Task):
    """Find a number by asking whether it is higher or lower."""

    name = "hotter"

    def __init__(self, highest: int = 1_000_000) -> None:
        self.highest = highest

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return f"Find a number from 1 to {self.highest}.", int(random.integers(self.highest)) + 1, None

    def tools(self, instance: Instance) -> tuple[Any, ...]:
        @baton.tool(pure=True, instant=True)
        def guess(number: int) -> str:
            """Is the hidden number higher, lower, or this one?"""
            return "this one" if number == instance.gold else "higher" if number < instance.gold else "lower"

        return (guess,)

    def verify(self, instance: Instance, answer: str) -> float:
        return float(answer.strip() == str(instance.gold))

    def solve(self, instance: Instance) -> str:
        return str(instance.gold)

    def reference_play(self) -> Any:
        def halving(request: Request) -> str:
            low, high = 1, self.highest
            for said in (entry.text for entry in request.entries if entry.speaker == "tool"):
                middle = (low + high) // 2
                if said.endswith("this one"):
                    return f"{'stop' if request.role == 'orchestrator' else 'return'} {middle}"
                low, high = (middle + 1, high) if said.endswith("higher") else (low, middle - 1)
            return f'call guess {{"number": {(low + high) // 2}}}'  # the middle of what is left

        return halving


if __name__ == "__main__":
    check_task(Hotter())
    print(baton.run(Hotter(64)).rewards)
