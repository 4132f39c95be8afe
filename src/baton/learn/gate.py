"""When sharing pays: the predicted speed-up, and the packing it chooses.

Floating-point operations of an update, forward and backward (recomputation scales all alike):
6 P N for the N tokens computed through P weights, 6 V d E for the E trained edges through the vocabulary
projection, and 12 L d sum_i (d(i) + 1) for attention: one query-key pair costs 4 d forward and 8 d backward.
The speed-up of one layout over another is the ratio. A linear trace gives 1 over merged rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from msgspec import Struct

from baton.learn.layout import Layout, Packing, overlaps
from baton.learn.rows import Row

__all__ = ["Shape", "choose", "cost", "speed_up"]

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
