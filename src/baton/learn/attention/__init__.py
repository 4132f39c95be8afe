"""Attention over a prefix forest: as parts (any device), or as a block mask (FlexAttention, CUDA)."""

from __future__ import annotations

from typing import Literal

import torch

from baton.errors import UsageError, nearest
from baton.learn.attention.flex import FlexPass, bucket
from baton.learn.attention.parts import PartsPass, num_levels
from baton.learn.attention.registry import tree_attention
from baton.learn.layout import Layout

__all__ = ["Kind", "make_pass", "tree_attention"]

Kind = Literal["auto", "parts", "flex"]
DEEP = 1
"""Levels above which one kernel with a block mask is used on CUDA: measured, even at 1, and 1.3x at 8."""


def make_pass(
    layout: Layout, model_dtype: torch.dtype, device: torch.device, kind: Kind = "auto"
) -> PartsPass | FlexPass:
    """What computes attention for this layout; its own `layout` may be padded."""
    if kind not in ("auto", "parts", "flex"):
        raise UsageError(f"there is no attention {kind!r}. {nearest(kind, ('auto', 'parts', 'flex'))}")
    slow = device.type == "cuda" and model_dtype not in (torch.bfloat16, torch.float16)
    if kind == "auto":
        deep = device.type == "cuda" and num_levels(layout) > DEEP
        kind = "flex" if slow or deep else "parts"
    if kind == "flex":
        return FlexPass(layout.padded(bucket(layout.num_tokens)), device)
    if slow:
        raise UsageError(
            f"attention 'parts' on CUDA needs bfloat16 or float16, not {model_dtype}. Use 'flex'."
        )
    return PartsPass(layout, device)
