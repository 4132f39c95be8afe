"""Loss scales: how much each token counts, so that chatty agents and long turns do not dominate.

For levels (l1, l2, ...) every group has the same total weight, within it every trace, within that every
agent, within that every turn, within that every token: the mean of means. Levels left out are pooled.
Weights average 1 over all trained tokens, so the global token count stays the denominator.

() is the mean over tokens (DAPO, arXiv 2503.14476). ("turn",) is the mean over calls of their token means
(GRPO, arXiv 2402.03300). ("trace", "agent") is WideSeek-R1's (1/G) sum (1/N) sum (1/tokens) sum [C].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import structs

from baton.errors import UsageError, nearest
from baton.learn.rows import Row

__all__ = ["LEVELS", "Level", "scaled"]

Level = Literal["group", "trace", "agent", "turn"]
LEVELS: tuple[Level, ...] = ("group", "trace", "agent", "turn")


def scaled(rows: Sequence[Row], levels: Sequence[Level]) -> list[Row]:
    """The rows with their weights multiplied by their share, times the number of tokens."""
    for level in levels:
        if level not in LEVELS:
            raise UsageError(f"there is no loss scale {level!r}. {nearest(level, LEVELS)}")
    chosen = [level for level in LEVELS if level in levels]
    sizes = np.array([len(row.places) for row in rows])
    share = np.ones(len(rows))
    above = np.zeros(len(rows), np.intp)
    for level in chosen:
        names = [_name(row, level) for row in rows]
        numbers = {name: n for n, name in enumerate(dict.fromkeys(zip(above.tolist(), names, strict=True)))}
        inner = np.array([numbers[key] for key in zip(above.tolist(), names, strict=True)])
        parents = {number: key[0] for key, number in numbers.items()}
        siblings = np.bincount(list(parents.values()))
        share /= siblings[above]
        above = inner
    share /= np.bincount(above, sizes)[above]
    total = sizes.sum()
    return [
        structs.replace(row, weights=row.weights * (total * part))
        for row, part in zip(rows, share.tolist(), strict=True)
    ]


def _name(row: Row, level: Level) -> str:
    return {"group": row.group, "trace": row.trace, "agent": row.agent, "turn": row.call}[level]
