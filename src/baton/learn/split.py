"""Micro-batches that bound the tokens of one pass. The gradient is the sum over them, so any cut is exact.

Rows are cut in the forest's own order, where a row costs only what it does not share with its neighbour;
a prefix that two micro-batches need is computed in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from baton.learn.layout import Packing, overlaps
from baton.learn.rows import Row

__all__ = ["split"]


def split(rows: Sequence[Row], max_tokens: int, packing: Packing = "forest") -> list[list[Row]]:
    """Rows in lists of at most `max_tokens` computed tokens each; a longer row is alone."""
    order, shared = overlaps(rows)
    parts: list[list[Row]] = []
    used = max_tokens + 1
    for at, (r, same) in enumerate(zip(order, shared, strict=True)):
        row = rows[r]
        # A merged chain grows by what its last row adds; a chain that is not extended costs its whole length.
        extends = at > 0 and same == len(rows[order[at - 1]].ids)
        free = same if packing == "forest" or (packing == "merged" and extends) else 0
        cost = len(row.ids) - free
        if used + cost > max_tokens:
            parts.append([])
            used, cost = 0, len(row.ids)
        parts[-1].append(row)
        used += cost
    return parts
