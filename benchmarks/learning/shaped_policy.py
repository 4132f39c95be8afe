"""A table that chooses how carefully workers of shaped teams work, trained by one critic's credit or another's.

A row for every grade of worker, what is done with its result, and how many work on the same (2, 3, or more): shapes
differ, rows come again. The value of a table on a shape is exact, and the best table is found by trying the rows of the
test shapes one after the other until none can be improved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import shaped_features
from shaped_critics import Linear, Shipped, group_mean
from shaped_teams import Rollout, Shape, drawn, expected, play

Row = tuple[str, str, int]
SHAPES, GROUP = 16, 4
"""Of one step."""
CRITIC_STEPS = 20
"""Of the graph critic, after each of the table's."""


class CareTable:
    """The log-odds of careful by row."""

    def __init__(self) -> None:
        self.odds: dict[Row, float] = {}

    def careful(self, shape: Shape, node: int) -> float:
        return 1 / (1 + math.exp(-self.odds.get(row_of(shape, node), 0.0)))

    def move(
        self, shapes: Sequence[Shape], rollouts: Sequence[Rollout], credits: Sequence[np.ndarray], rate: float
    ) -> None:
        """A step of policy gradient; credits in units of their root mean square."""
        size = math.sqrt(float(np.mean(np.concatenate(credits) ** 2))) or 1.0
        step: dict[Row, float] = {}
        for shape, one, credit in zip(shapes, rollouts, credits, strict=True):
            for node, place, p, worth in zip(one.nodes, one.choices, one.care, credit, strict=True):
                row, took = row_of(shape, int(node)), one.trace.events[place].choice == 0
                step[row] = step.get(row, 0.0) + float(worth) / size * (took - p)
        for row, each in step.items():
            moved = self.odds.get(row, 0.0) + rate * each / len(rollouts)
            self.odds[row] = min(6.0, max(-6.0, moved))


def row_of(shape: Shape, node: int) -> Row:
    above = shape.above[node]
    return shape.roles[node], shape.roles[above], min(4, max(2, len(shape.below[above])))


def trained(arm: str, rate: float, seed: int, steps: int, num_events: int, setting: float) -> CareTable:
    """So many steps; `setting` is the critic's own, as it was tuned."""
    table = CareTable()
    critic = Shipped("graph", setting, CRITIC_STEPS, seed)
    linear = Linear(shaped_features.graph, setting)
    for step in range(steps):
        drawn_now = [drawn(f"policy/{seed}/{step}/{k}", num_events) for k in range(SHAPES)]
        shapes = [shape for shape in drawn_now for _ in range(GROUP)]
        rollouts = [play(shape, f"policy/{seed}/{step}/{n}", table.careful) for n, shape in enumerate(shapes)]
        if arm == "group mean":
            values = group_mean(rollouts, GROUP)
            credits = [
                np.full(len(one.choices), one.total - v[0]) for one, v in zip(rollouts, values, strict=True)
            ]
        else:
            values = critic.judge_then_learn(rollouts) if arm == "graph" else _judged(linear, rollouts)
            credits = [v[one.choices + 1] - v[one.choices] for one, v in zip(rollouts, values, strict=True)]
        table.move(shapes, rollouts, credits, rate)
    return table


def _judged(linear: Linear, rollouts: Sequence[Rollout]) -> list[np.ndarray]:
    """By what was known before, as the shipped critics judge; at first nothing is."""
    known = linear.ridge is not None
    values = [linear.values(one) if known else np.zeros(len(one.values)) for one in rollouts]
    linear.learn(rollouts, latest=512)
    return values


def regret(table: CareTable, shapes: Sequence[Shape]) -> float:
    """How much less than the best table it is worth on these shapes, as a share of what even odds are worth less."""
    best, even = best_value(shapes), _mean(CareTable(), shapes)
    return (best - _mean(table, shapes)) / (best - even)


def best_value(shapes: Sequence[Shape]) -> float:
    """Of a table that is certain in every row."""
    table = CareTable()
    rows = sorted({row_of(shape, node) for shape in shapes for node in shape.workers})
    with_row = {row: [s for s in shapes if any(row_of(s, node) == row for node in s.workers)] for row in rows}
    table.odds = dict.fromkeys(rows, 30.0)
    better = True
    while better:
        better = False
        for row in rows:
            now = _mean(table, with_row[row])
            table.odds[row] = -table.odds[row]
            if _mean(table, with_row[row]) > now + 1e-12:
                better = True
            else:
                table.odds[row] = -table.odds[row]
    return _mean(table, shapes)


def _mean(table: CareTable, shapes: Sequence[Shape]) -> float:
    return math.fsum(expected(shape, table.careful) for shape in shapes) / len(shapes)
