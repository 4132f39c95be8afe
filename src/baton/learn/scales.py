"""Loss scales: how much each token counts, so that chatty agents and long turns do not dominate.

For levels (l1, l2, ...) every group has the same total weight, within it every trace, within that every
agent, within that every turn, within that every token: the mean of means. Levels left out are pooled.
Weights average 1 over all trained tokens, so the global token count stays the denominator.

() is the mean over tokens (DAPO, arXiv 2503.14476). ("turn",) is the mean over calls of their token means
(GRPO, arXiv 2402.03300). ("trace", "agent") is WideSeek-R1's (1/G) sum (1/N) sum (1/tokens) sum [C].

Before that, `learned_weights` leaves out the tokens of decisions that are not learned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import structs

from baton.credit import project
from baton.errors import UsageError, nearest
from baton.learn.rows import Row
from baton.trace.numbers import Floats
from baton.trace.record import Credit
from baton.trace.trace import Trace

__all__ = ["LEVELS", "Level", "learned_weights", "scaled"]

Level = Literal["group", "trace", "agent", "turn"]
LEVELS: tuple[Level, ...] = ("group", "trace", "agent", "turn")
_DECIDES = {"wait": "stop", "continue": "stop"} | {
    name: name for name in ("spawn", "delegate", "communicate", "aggregate", "stop")
}
"""Which learned decision an event's is: to go on is not to stop."""


def learned_weights(
    trace: Trace, sizes: Mapping[str, int], learned: Collection[str], *, level: float = 1.0
) -> dict[str, Floats]:
    """For each call and its number of tokens: `level`, and 0 on tokens of decisions that are not learned."""
    off = [
        Credit(unit="orchestrator", target=event.id, value=1.0, estimator="off")
        for event in trace.events
        if event.call in sizes and _DECIDES.get(event.decision, "") not in ("", *learned)
    ]
    reached = project(trace, off) if off else {}  # all at once: each alone would go through the whole trace
    return {
        call: Floats.from_buffer(
            np.where(reached[call].numpy() > 0, 0.0, level) if off else np.full(size, level)
        )
        for call, size in sizes.items()
    }


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
