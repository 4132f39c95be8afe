"""A model's forward over a pass's attention: through transformers, or for Llamas (tiny and SmolLM2 are such) past it.

A small model's decode step is hundreds of small operations, and transformers' modules, wrappers and configuration
look-ups around them cost as much as the arithmetic. `LlamaForward` calls the same operations in the same order, so
its numbers are the same bits; `forward_of` tries that on a short prompt and otherwise keeps to transformers. On a GPU,
where every operation costs its launch, a norm is one instead of eight, and numbers are the same up to rounding. Layers
that are not what a Llama has by itself (adapters, hooks, quantised ones) are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from baton.engine.torch.attention import Pass, attention_over

__all__ = ["Forward", "LlamaForward", "ModelForward", "close", "forward_of"]


class Forward(Protocol):
    """Ids and positions (N, on the model's device) to logits, N x vocabulary, or those of the last alone."""

    def __call__(self, run: Pass, ids: Tensor, positions: Tensor, *, last_only: bool = False) -> Tensor: ...


class ModelForward:
    """Through transformers."""

    def __init__(self, model: Any) -> None:
        self._model = model
        # A mask that is already four-dimensional is passed on as it is: the passes do their own masking.
        self._no_mask = torch.empty(1, 1, 1, 1, device=model.device)

    def __call__(self, run: Pass, ids: Tensor, positions: Tensor, *, last_only: bool = False) -> Tensor:
        with attention_over(self._model.config, run):
            out = self._model(
                input_ids=ids[None],
                position_ids=positions[None],
                attention_mask=self._no_mask,
                use_cache=False,
                logits_to_keep=int(last_only),
            )
        logits: Tensor = out.logits[0]
        return logits


class LlamaForward:
    """The operations of `LlamaForCausalLM`, without what is around them."""

    def __init__(
        self,
        model: Any,
        computing: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        fused: bool = False,
    ) -> None:
        self._model = model
        self._computing = computing
        self._fused = fused

    def __call__(self, run: Pass, ids: Tensor, positions: Tensor, *, last_only: bool = False) -> Tensor:
        with self._computing():
            return self._logits(run, ids, positions, last_only)

    def _logits(self, run: Pass, ids: Tensor, positions: Tensor, last_only: bool) -> Tensor:
        decoder, normed = self._model.model, partial(_normed, fused=self._fused)
        x = decoder.embed_tokens(ids)
        cos, sin = decoder.rotary_emb(x[None], position_ids=positions[None])
        half = sin.shape[-1] // 2
        # (-b, a) * sin is (b, a) * (-sin, sin), to the bit.
        rotation = cos[0][:, None], torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1)[:, None]
        for number, layer in enumerate(decoder.layers):
            h = _attended(run, number, layer.self_attn, normed(layer.input_layernorm, x), rotation)
            x = h.add_(x)
            h = normed(layer.post_attention_layernorm, x)
            mlp = layer.mlp
            h = mlp.act_fn(_projected(mlp.gate_proj, h)).mul_(_projected(mlp.up_proj, h))
            x = _projected(mlp.down_proj, h).add_(x)
        x = normed(decoder.norm, x)
        return _projected(self._model.lm_head, x[-1:] if last_only else x)


def _attended(run: Pass, number: int, layer: Any, h: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    tokens, size = len(h), layer.head_dim
    q = _projected(layer.q_proj, h).view(tokens, -1, size)
    k = _projected(layer.k_proj, h).view(tokens, -1, size)
    v = _projected(layer.v_proj, h).view(tokens, -1, size)
    cos, sin = rotation
    both = torch.cat((q, k), 1)
    swapped = torch.cat((both[..., size // 2 :], both[..., : size // 2]), -1)
    both = (both * cos).add_(swapped.mul_(sin))
    heads = q.shape[1]
    out = run.attend(number, both[:, :heads], both[:, heads:], v, layer.scaling).to(q.dtype)
    return _projected(layer.o_proj, out.reshape(tokens, -1))


def _projected(layer: Any, x: Tensor) -> Tensor:
    if type(layer) is nn.Linear and not _hooked(layer):
        return linear(x, layer.weight, layer.bias)
    found: Tensor = layer(x)
    return found


def _normed(layer: Any, x: Tensor, *, fused: bool) -> Tensor:
    if type(layer) is not LlamaRMSNorm or _hooked(layer):
        found: Tensor = layer(x)
        return found
    if fused:
        return rms_norm(x, layer.weight.shape, layer.weight, layer.variance_epsilon)
    wide = x.float()
    size = wide.pow(2).mean(-1, keepdim=True).add_(layer.variance_epsilon)
    return layer.weight * (wide * size.rsqrt_()).to(x.dtype)


def _hooked(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or "forward" in layer.__dict__)


@torch.inference_mode()
def forward_of(model: Any, probe: Pass, ids: Tensor, positions: Tensor) -> Forward:
    """The cheapest forward that gives the model's own logits for these ids under this pass."""
    plain = ModelForward(model)
    base = getattr(model, "base", model)  # of a model with adapters, which says how to compute with one
    if type(base) is not LlamaForCausalLM or any(_hooked(module) for module in base.modules()):
        return plain
    own = plain(probe, ids, positions)
    computing = getattr(model, "computing", nullcontext)
    if ids.is_cuda:
        fused = LlamaForward(base, computing, fused=True)
        if close(own, fused(probe, ids, positions)):
            return fused
    lean = LlamaForward(base, computing)
    return lean if torch.equal(own, lean(probe, ids, positions)) else plain


def close(expected: Tensor, found: Tensor) -> bool:
    """Up to what rounding does to logits."""
    slack = (2e-3 if expected.dtype == torch.float32 else 0.1) * max(1.0, float(expected.abs().max()))
    return float((expected.float() - found.float()).abs().max()) <= slack
