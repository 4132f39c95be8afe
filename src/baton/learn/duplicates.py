"""Each draw trains once: a prefix shared by k forks was sampled once, so its advantage is their mean.

Two tokens are one draw when they are the same edge of the forest (the same ids all the way from the root)
and their rows name the same `sample`. Rollouts that happen to say the same are different draws and stay
apart, though the forest computes them once. What is left of a row after its tokens went to another is
marked (`whole`), because a sequence-level ratio no longer has the whole sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from baton.learn.layout import plant
from baton.learn.rows import Row

__all__ = ["once"]


def once(rows: Sequence[Row]) -> list[Row]:
    """The rows with every draw in one of them, at the mean of its advantages; rows left empty go."""
    names = {name: number for number, name in enumerate(dict.fromkeys(row.sample for row in rows))}
    if len(names) == len(rows):
        return list(rows)
    _, at = plant(rows)
    sizes = [len(places) for places in at]
    row_number = np.repeat(np.arange(len(rows)), sizes)
    sample = np.repeat([names[row.sample] for row in rows], sizes)
    edge = np.concatenate(at).astype(np.int64)
    _, first, group, count = np.unique(
        edge * len(names) + sample, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == len(edge):
        return list(rows)
    weight = np.concatenate([row.weights for row in rows])
    advantage = np.concatenate([row.advantages for row in rows])
    total = np.bincount(group, weight)
    mean = np.bincount(group, weight * advantage) / np.where(total == 0, 1, total)
    kept = np.zeros(len(edge), bool)
    kept[first] = True
    starts = np.concatenate(([0], np.cumsum(sizes)))
    found: list[Row] = []
    for r in np.unique(row_number[kept]).tolist():
        row, a, b = rows[r], starts[r], starts[r + 1]
        mine = kept[a:b]
        groups = group[a:b][mine]
        found.append(
            structs.replace(
                row,
                places=row.places[mine],
                sampler=row.sampler[mine],
                advantages=mean[groups],
                weights=(total / count)[groups],
                whole=row.whole and bool(mine.all()),
            )
        )
    return found
