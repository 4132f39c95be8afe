"""Attention over parts: every query attends to several stretches of keys, merged exactly.

Softmax attention over a union of key sets is the mean of the attention over each, weighted by their
softmax mass exp(lse). So a prefix shared by many rows is read once for all of them (one matrix product
with every row's query), and each row's own keys are a second part; the merge is exact up to rounding.
This is cascade inference (FlashInfer, 2024; Hydragen, arXiv 2402.05099) in plain torch.

transformers' models call `forward` through their attention registry while a pass is current in the
thread; outside of one, the function is plain SDPA, so a model can be trained and run by turns.
Shapes: N query tokens, H heads, K key-value heads, G = H/K, D head size, T keys.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

__all__ = ["Pass", "attend", "attention_over", "heads_last", "join", "spread"]

NAME = "baton"
_HALF = (torch.float16, torch.bfloat16)
_FLASH_QUERIES = 1024


class Pass(Protocol):
    """One forward pass: where its keys are kept and what each query may see."""

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        """The attention output, N x H x D."""
        ...


_current = threading.local()


def forward(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **rest: Any
) -> tuple[Tensor, None]:
    """What transformers calls in each layer."""
    current: Pass | None = getattr(_current, "run", None)
    if current is None:
        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **rest)
        return out, None
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if rest.get(name) is not None:
            raise NotImplementedError(name)
    scale = rest.get("scaling") or query.shape[-1] ** -0.5
    out = current.attend(
        module.layer_idx, query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), scale
    )
    return out.to(query.dtype)[None], None


AttentionInterface.register(NAME, forward)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def attention_over(config: Any, current: Pass) -> Iterator[None]:
    """Run the body's forward with this pass; the model's own attention is back afterwards."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    _current.run = current
    try:
        yield
    finally:
        _current.run = None
        config._attn_implementation = before


def attend(
    q_BKSD: Tensor,
    k_BKTD: Tensor,
    v_BKTD: Tensor,
    scale: float,
    bias: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention output and its log-sum-exp (float32) for S queries each. `bias` is added to the scores."""
    device, queries = q_BKSD.device.type, q_BKSD.shape[2]
    if bias is not None:
        bias = bias.expand(-1, q_BKSD.shape[1], queries, -1)
    if device == "cpu":
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q_BKSD, k_BKTD, v_BKTD, 0.0, causal, attn_mask=bias, scale=scale
        )
        return out, lse
    if device == "cuda" and q_BKSD.shape[3] % 8 == 0 and (bias is None or bias.shape[3] % 8 == 0):
        if bias is None and q_BKSD.dtype in _HALF and (causal or queries >= _FLASH_QUERIES):
            flash = torch.ops.aten._scaled_dot_product_flash_attention
            out, lse = flash(q_BKSD, k_BKTD, v_BKTD, 0.0, causal, False, scale=scale)[:2]
        else:
            efficient = torch.ops.aten._scaled_dot_product_efficient_attention
            out, lse = efficient(q_BKSD, k_BKTD, v_BKTD, bias, True, 0.0, causal, scale=scale)[:2]
        return out, lse[..., :queries]
    scores = torch.matmul(q_BKSD.float(), k_BKTD.float().transpose(-1, -2)).mul_(scale)
    if bias is not None:
        scores.add_(bias)
    if causal:
        later = torch.ones(queries, queries, dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(later, -torch.inf)
    lse = torch.logsumexp(scores, -1, keepdim=True)
    return torch.matmul(torch.exp(scores.sub_(lse)), v_BKTD.float()), lse[..., 0]


def join(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two parts' attention. Shapes ... x D and ...; the result is new."""
    weight = torch.sigmoid(more_lse - lse).unsqueeze(-1)
    return torch.lerp(out.float(), more.float(), weight), torch.logaddexp(lse, more_lse)


def heads_last(out_BKSD: Tensor, lse_BKS: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """From one batch entry of queries `rows x G` to rows first: N x K x G x D and N x K x G."""
    kv_heads, _, size = out_BKSD.shape[1:]
    out = out_BKSD[0].view(kv_heads, rows, -1, size).transpose(0, 1)
    return out, lse_BKS[0].view(kv_heads, rows, -1).transpose(0, 1)


def spread(q_NKGD: Tensor) -> Tensor:
    """All rows' queries as one batch entry, 1 x K x (N G) x D: how a shared part is read once."""
    rows, kv_heads, group, size = q_NKGD.shape
    return q_NKGD.transpose(0, 1).reshape(1, kv_heads, rows * group, size)
