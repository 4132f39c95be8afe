"""Stages of different rollouts side by side (MarsRL's pipeline): rounds of answers that a step takes.

python benchmarks/pipeline.py            the recipe marsrl, three steps of its rollouts
python benchmarks/pipeline.py --smoke    small sizes

A stage is what one agent says before the next speaks; a group's next stage needs its own last one and nobody else's. A
round answers all calls that wait. Three ways to play the groups of a step are compared: side by side, as training does
(measured); with all groups waiting for each other after every stage (from the rounds of each group's stages); and one
group after the other (measured, `scale.batch = 1`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from baton.compose.training import make_trainer
from baton.learn import rollouts
from baton.learn.recipe import load
from table import machine, print_table, row

SMOKE = (
    "warm.steps=20",
    "warm.episodes=40",
    "rollout.groups=3",
    "rollout.group_size=2",
    "rollout.fan_out=[2, 2]",
)


class Rounds:
    """Counts rounds of answers, and at which of them each depth of branches began."""

    def __init__(self) -> None:
        self.count = 0
        self.begun: dict[int, int] = {}
        self._ask, self._branches = rollouts._Rounds._ask, rollouts._branches

    def __enter__(self) -> Rounds:
        async def ask(rounds: Any, *rest: Any) -> None:
            self.count += 1
            await self._ask(rounds, *rest)

        async def branches(trace: Any, depth: int, *rest: Any, **more: Any) -> Any:
            self.begun.setdefault(depth, self.count)
            return await self._branches(trace, depth, *rest, **more)

        rollouts._Rounds._ask, rollouts._branches = ask, branches  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        rollouts._Rounds._ask, rollouts._branches = self._ask, self._branches  # type: ignore[method-assign]

    def stages(self) -> list[int]:
        """Rounds of each stage."""
        ends = [*(self.begun[depth] for depth in sorted(self.begun)), self.count]
        return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def measured(changes: tuple[str, ...], steps: int) -> dict[str, int]:
    """Way of playing -> rounds, over some steps."""
    trainer = make_trainer(load("marsrl", changes))
    found = {"side by side": 0, "stage by stage": 0, "one by one": 0}
    for number in range(1, steps + 1):
        every = range(trainer.rollouts.part_at(number).groups)
        with Rounds() as together:
            trainer.rollouts.play_lot(number, every)
        alone: list[list[int]] = []
        for group in every:
            with Rounds() as one:
                trainer.rollouts.play_lot(number, [group])
            alone.append(one.stages())
        found["side by side"] += together.count
        found["one by one"] += sum(map(sum, alone))
        found["stage by stage"] += sum(max(each[k] for each in alone) for k in range(len(alone[0])))
    trainer.close()
    return found


def rows(found: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """The table of every benchmark."""
    mine = found["side by side"]
    for way in ("stage by stage", "one by one"):
        yield row(
            "rounds of answers, groups side by side",
            str(mine),
            way,
            str(found[way]),
            found[way] / mine,
            machine(),
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    smoke = parser.parse_args().smoke
    print_table(rows(measured(SMOKE if smoke else (), 1 if smoke else 3)))


if __name__ == "__main__":
    main()
