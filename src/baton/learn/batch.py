"""A packed batch: a layout, the distinct trained edges on it, and the tokens of the rows that lie on them.

An edge is computed once; a token is what the loss counts. Rows that pass through the same edge with their own
advantage, weight and sampler log-probability are several tokens of one edge, so a loss over tokens equals the
sum over rows exactly, under any clipping, while the model and the vocabulary see each edge once. (Where all
rows of an edge have one sampler log-probability, PPO's sum collapses to two weights per edge,
W+ = sum w max(A, 0) and W- = sum w min(A, 0); adding advantages into one would be wrong under clipping.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.learn.layout import Layout, Packing, plant
from baton.learn.rows import Ids, Reals, Row

__all__ = ["Batch", "pack"]


class Batch(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of one policy, ready for a forward pass. Arrays are over E edges or T tokens."""

    layout: Layout
    edge: Ids
    """E: the token each edge leads to."""
    temperature: Reals
    """E: what the logits are divided by."""
    of: NDArray[np.intp]
    """T: the edge of each token."""
    advantage: Reals
    weight: Reals
    sampler: Reals
    sequence: NDArray[np.intp]
    """T: which row."""
    stale: NDArray[np.bool_]
    """T: sampled by other weights than those being trained, or by unknown ones."""
    whole: bool
    """Every row still has all of its tokens."""


def pack(rows: Sequence[Row], packing: Packing = "forest", *, version: str | None = None) -> Batch:
    """`version` is that of the weights being trained; None counts every row as fresh."""
    layout, at = plant(rows, packing)
    sizes = [len(places) for places in at]
    place = np.concatenate(at).astype(np.int64)
    levels = np.array(sorted({row.temperature for row in rows}))
    level = np.searchsorted(levels, [row.temperature for row in rows])
    keys, of = np.unique(place * len(levels) + np.repeat(level, sizes), return_inverse=True)
    stale = [version is not None and row.version != version for row in rows]
    return Batch(
        layout=layout,
        edge=(keys // len(levels)).astype(np.int32),
        temperature=levels[keys % len(levels)],
        of=of,
        advantage=_join(row.advantages for row in rows),
        weight=_join(row.weights for row in rows),
        sampler=_join(row.sampler for row in rows),
        sequence=np.repeat(np.arange(len(rows)), sizes),
        stale=np.repeat(stale, sizes),
        whole=all(row.whole for row in rows),
    )


def _join(arrays: Any) -> Reals:
    return np.concatenate(list(arrays))
