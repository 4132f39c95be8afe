"""Merging two parts of attention, and the places of several stretches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from baton.errors import UsageError
from baton.forest.rows import Ids

Places = Tensor | slice


def join(out: Tensor, lse: Tensor, where: Places, more: Tensor, more_lse: Tensor) -> None:
    """Add a part at `where`, in the precision of `out` (the engine's own join lowers float64)."""
    before, before_lse = out[where], lse[where]
    share = torch.sigmoid(more_lse - before_lse).unsqueeze(-1).to(out.dtype)
    if isinstance(where, slice):  # both are views
        before.lerp_(more.to(out.dtype), share)
        torch.logaddexp(before_lse, more_lse, out=before_lse)
        return
    out[where] = torch.lerp(before, more.to(out.dtype), share)
    lse[where] = torch.logaddexp(before_lse, more_lse)


def places(start: Ids, stop: Ids, device: torch.device) -> Places:
    """The tokens of several stretches: a slice where they are one, which costs no copy."""
    if len(start) == 1 or (start[1:] == stop[:-1]).all():
        return slice(int(start[0]), int(stop[-1]))
    every = [np.arange(a, b) for a, b in zip(start, stop, strict=True)]
    return torch.from_numpy(np.concatenate(every)).to(device)


# -- registry --
# Which attention a transformers model runs: a name in its registry, bound to one pass per model.
#
# The pass is found by the model's configuration object, not by thread: with gradient checkpointing the layers
# run again inside backward, which torch does on another thread. So the body of `tree_attention` must hold the
# backward pass too; a layer that runs outside of it is an error rather than a silently dropped mask.

NAME = "baton_forest"


class Pass(Protocol):
    """One forward and backward over a layout. N tokens, H heads, K key-value heads, D their size."""

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        """The attention output, N x H x D."""
        ...


_running: dict[int, Pass] = {}


def forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001  # transformers' signature
    **rest: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer."""
    current = _running.get(id(module.config))
    if current is None:
        raise RuntimeError("a layer ran outside of tree_attention; keep forward and backward inside of it.")
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if rest.get(name) is not None:
            raise UsageError(
                f"{type(module).__name__} uses {name}, which the prefix forest does not compute. "
                "Train a decoder with full attention, such as Llama, Qwen or SmolLM."
            )
    if rest.get("dropout"):
        raise UsageError("attention dropout makes shared prefixes inexact. Set attention_dropout to 0.")
    scale = rest.get("scaling") or query.shape[-1] ** -0.5
    out = current.attend(query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), scale)
    return out[None], None


# No mask function is registered under the name, so the models make no mask of their own.
AttentionInterface.register(NAME, forward)


@contextmanager
def tree_attention(model: Any, current: Pass) -> Iterator[None]:
    """Layers of `model` attend through `current` in the body: forward, and backward."""
    config = model.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = NAME
    _running[id(config)] = current
    try:
        yield
    finally:
        del _running[id(config)]
        config._attn_implementation = before
