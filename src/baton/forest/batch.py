"""A packed batch: a layout, the distinct trained edges on it, and the tokens of the rows that lie on them.

An edge is computed once; a token is what the loss counts. Rows that pass through the same edge with their own
advantage, weight and sampler log-probability are several tokens of one edge, so a loss over tokens equals the
sum over rows exactly, under any clipping, while the model and the vocabulary see each edge once. (Where all
rows of an edge have one sampler log-probability, PPO's sum collapses to two weights per edge,
W+ = sum w max(A, 0) and W- = sum w min(A, 0); adding advantages into one would be wrong under clipping.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.forest.layout import Layout, Packing, overlaps, plant
from baton.forest.rows import Ids, Reals, Row

# -- split --
# Micro-batches that bound the tokens of one pass. The gradient is the sum over them, so any cut is exact.
#
# Rows are cut in the forest's own order, where a row costs only what it does not share with its neighbour;
# a prefix that two micro-batches need is computed in both.


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


# -- gate --
# When sharing pays: the predicted speed-up, and the packing it chooses.
#
# Floating-point operations of an update, forward and backward (recomputation scales all alike):
# 6 P N for the N tokens computed through P weights, 6 V d E for the E trained edges through the vocabulary
# projection, and 12 L d sum_i (d(i) + 1) for attention: one query-key pair costs 4 d forward and 8 d backward.
# The speed-up of one layout over another is the ratio. A linear trace gives 1 over merged rows.

WORTH = 1.1
"""Below this predicted speed-up, merged rows: joining the parts of attention costs a few per cent."""


class Shape(Struct, frozen=True, kw_only=True):
    """What a model's cost depends on."""

    weights: int
    """Parameters every token goes through: all but the embeddings and the vocabulary projection."""
    head: int
    """Parameters of the vocabulary projection."""
    layers: int
    width: int
    """Query heads times their size."""

    @classmethod
    def of(cls, model: Any) -> Self:
        """From a transformers model."""
        config = model.get_decoder().config
        tables = {id(p): p.numel() for p in model.get_input_embeddings().parameters()}
        projection = {id(p): p.numel() for p in model.get_output_embeddings().parameters()}
        every = {id(p): p.numel() for p in model.parameters()}
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            weights=sum(every.values()) - sum((tables | projection).values()),
            head=sum(projection.values()),
            layers=config.num_hidden_layers,
            width=config.num_attention_heads * size,
        )


def cost(shape: Shape, num_tokens: int, num_pairs: int, num_edges: int) -> float:
    """Operations of one update."""
    return float(
        6 * shape.weights * num_tokens
        + 6 * shape.head * num_edges
        + 12 * shape.layers * shape.width * num_pairs
    )


def speed_up(shape: Shape, slow: Layout, fast: Layout, slow_edges: int, fast_edges: int) -> float:
    """The prediction S for one layout over another."""
    return _of(shape, slow, slow_edges) / _of(shape, fast, fast_edges)


def choose(rows: Sequence[Row], shape: Shape) -> Packing:
    """`forest` where it is predicted to be worth it over `merged`."""
    order, shared = overlaps(rows)
    sizes = np.array([len(rows[r].ids) for r in order], np.int64)
    common = np.array(shared, np.int64)
    leaf = np.append(common[1:] < sizes[:-1], True)
    edges = sum(len(row.places) for row in rows)
    merged = cost(shape, int(sizes[leaf].sum()), int(_pairs(sizes)[leaf].sum()), edges)
    own = _pairs(sizes) - _pairs(common)
    forest = cost(shape, int((sizes - common).sum()), int(own.sum()), edges)
    return "forest" if merged >= WORTH * forest else "merged"


def _of(shape: Shape, layout: Layout, edges: int) -> float:
    return cost(shape, layout.num_tokens, int((layout.depth.astype(np.int64) + 1).sum()), edges)


def _pairs(sizes: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Query-key pairs of causal chains."""
    return sizes * (sizes + 1) // 2
