"""Which attention a transformers model runs: a name in its registry, bound to one pass per model.

The pass is found by the model's configuration object, not by thread: with gradient checkpointing the layers
run again inside backward, which torch does on another thread. So the body of `tree_attention` must hold the
backward pass too; a layer that runs outside of it is an error rather than a silently dropped mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor
from transformers import AttentionInterface

from baton.errors import UsageError

__all__ = ["Pass", "tree_attention"]

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
