"""What a pass of `llama` keeps in memory, and so how many of its layers need not be computed again in backward.

A layer that is kept for backward holds, for every token, its input, its two norms and the stream between them, queries,
keys and values, attention's output, the gate's input (the model's precision), and a number for each head and norm
(float32). A layer that is computed again holds what it is given. Beside that a pass needs room for logits, for the
gradients of one layer on the way, and for those of the weights.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from msgspec import Struct

USED = 0.9
"""Of the memory that is free, what a pass may take: the allocator cuts it into pieces."""
SHARE = 16
"""Logits may take one part in so many of it."""


class Sizes(Struct, frozen=True, kw_only=True):
    """What memory depends on."""

    layers: int
    width: int
    inner: int
    """Of the gated products."""
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    bytes: int
    """Of a number in the model's precision."""
    rank: int = 0
    """Of adapters on all projections; 0: none."""

    @classmethod
    def of(cls, model: Any) -> Self:
        """The sizes of a Llama."""
        config = model.config
        layer = model.model.layers[0]
        ranks = [len(found[0]) for found in _factors(layer)]
        return cls(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_size=layer.self_attn.head_dim,
            vocab=config.vocab_size,
            bytes=model.dtype.itemsize,
            rank=max(ranks, default=0),
        )

    @property
    def kept(self) -> int:
        """Bytes of a token that a layer keeps for backward."""
        attended = self.heads * self.head_size
        turned = (self.heads + 2 * self.kv_heads) * self.head_size
        numbers = 4 * self.width + attended + turned + 2 * self.inner + 7 * self.rank
        return self.bytes * numbers + (8 if self.bytes == 8 else 4) * (self.heads + 2)

    @property
    def given(self) -> int:
        """Bytes of a token that a layer holds that is computed again: the stream, and what is to be added to it."""
        return 2 * self.bytes * self.width

    @property
    def working(self) -> int:
        """Bytes of a token that are needed on the way through one layer and back."""
        turned = (self.heads + 2 * self.kv_heads) * self.head_size
        return self.kept + self.bytes * (4 * self.inner + 3 * turned + 6 * self.width)


def layers_kept(sizes: Sizes, num_tokens: int, num_edges: int, free: int) -> int:
    """How many layers may keep what backward needs, of `free` bytes; the others are computed again."""
    logits = min(free // SHARE, sizes.bytes * sizes.vocab * num_edges)
    left = USED * free - num_tokens * (sizes.working + sizes.layers * sizes.given) - 2 * logits
    each = num_tokens * (sizes.kept - sizes.given)
    return max(0, min(sizes.layers, int(left // max(1, each))))


_held = [0]
"""Bytes that recorded passes keep for themselves: to the allocator they are at hand, and nobody else gets them."""


def hold(nbytes: int) -> None:
    """So many bytes more are a recorded pass's own; fewer, where it is gone."""
    _held[0] += nbytes


def free_bytes(device: torch.device) -> int | None:
    """What the process may still take, what its allocator has at hand included; None: not known."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + max(0, torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) - _held[0])


def _factors(layer: Any) -> list[Any]:
    found = [each.factors() for each in layer.modules() if hasattr(each, "factors")]
    return [each for each in found if each is not None]
