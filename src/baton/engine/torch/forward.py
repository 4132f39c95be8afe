"""A model's forward over a pass's attention: through transformers, or for Llamas (tiny and SmolLM2 are such) past it.

A small model's decode step is hundreds of small operations, and transformers' modules, wrappers and configuration
look-ups around them cost as much as the arithmetic. `LlamaForward` calls the same operations in the same order, so
its numbers are the same bits; `forward_of` tries that on a short prompt and otherwise keeps to transformers. On a GPU,
where every operation costs its launch, a norm is one instead of eight, and numbers are the same up to rounding. Layers
that are not what a Llama has by itself (adapters, hooks, quantised ones) are called as they are.

Attention is over parts: every query attends to several stretches of keys, merged exactly. Softmax attention over a
union of key sets is the mean of the attention over each, weighted by their softmax mass exp(lse). So a prefix shared by
many rows is read once for all of them (one matrix product with every row's query), and each row's own keys are a second
part; the merge is exact up to rounding. This is cascade inference (FlashInfer, 2024; Hydragen, arXiv 2402.05099) in
plain torch. transformers' models call `forward` through their attention registry while a pass is current in the thread;
outside of one, the function is plain SDPA, so a model can be trained and run by turns.

Shapes: N query tokens, H heads, K key-value heads, G = H/K, D head size, T keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm
from transformers import AttentionInterface, AttentionMaskInterface, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.llama.modeling_llama import LlamaRMSNorm

NAME = "baton"
_HALF = (torch.float16, torch.bfloat16)
_FLASH_QUERIES = 1024


class Pass(Protocol):
    """One forward pass: where its keys are kept and what each query may see."""

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        """The attention output, N x H x D."""
        ...


class Keeping(Pass, Protocol):
    """A pass for the sake of its keys and values."""

    def store(self, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """Keep those of a layer whose output nobody reads."""
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


T = TypeVar("T")


class Beside:
    """Several entries of keys and values side by side, each read by queries of its own, in one call.

    An entry is one or more stretches (layers x 2 x heads x ids x size), one after the other. Entries are padded to the
    longest with a mask, and so are their readers by repeating the last one, so those of like size belong together.
    Prefill reads earlier turns of conversations this way, decoding the prompts that groups share.
    """

    def __init__(self, entries: Sequence[Sequence[Tensor]]) -> None:
        self.stretches = [kv for stretches in entries for kv in stretches]
        like = entries[0][0]
        lengths = [sum(kv.shape[3] for kv in stretches) for stretches in entries]
        layers, _, heads, _, size = like.shape
        longest = -(-max(lengths) // 8) * 8  # the GPU's kernels want masks of whole eights
        self.kv = like.new_zeros(layers, 2, len(entries), heads, longest, size)
        for i, stretches in enumerate(entries):
            at = 0
            for kv in stretches:
                self.kv[:, :, i, :, at : at + kv.shape[3]] = kv
                at += kv.shape[3]
        unseen = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
        bias = torch.zeros(unseen.shape).masked_fill_(unseen, -torch.inf)
        self.bias = bias.to(like.device, like.dtype)[:, None, None]

    def attend(
        self, layer: int, q_NKGD: Tensor, readers: Readers, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Which queries, and their attention to their entry."""
        num, longest = readers.index.shape
        _, kv_heads, group, size = q_NKGD.shape
        q = q_NKGD.view(num, longest, kv_heads, group, size) if readers.all else q_NKGD[readers.index]
        q = q.transpose(1, 2).reshape(num, kv_heads, longest * group, size)
        o, s = attend(q, self.kv[layer, 0], self.kv[layer, 1], scale, self.bias)
        o = o.view(num, kv_heads, longest, group, size).transpose(1, 2).flatten(0, 1)
        s = s.view(num, kv_heads, longest, group).transpose(1, 2).flatten(0, 1)
        return (
            (readers.where, o, s)
            if readers.real is None
            else (readers.where, o[readers.real], s[readers.real])
        )


class Readers:
    """Which of `num` queries read each entry."""

    def __init__(self, numbers: Sequence[Sequence[int] | range], num: int, device: torch.device) -> None:
        longest = max(map(len, numbers))
        steps = np.arange(longest)
        padded = np.stack([np.asarray(own)[np.minimum(steps, len(own) - 1)] for own in numbers])
        self.index = torch.from_numpy(padded).to(device)
        self.real: Tensor | None = None
        """Places of the index that are not padding; None: all."""
        self.where = self.index.flatten()
        self.all = np.array_equal(padded.ravel(), np.arange(num))
        """They are all the queries there are, in order."""
        if min(map(len, numbers)) < longest:
            seen = np.concatenate([i * longest + np.arange(len(own)) for i, own in enumerate(numbers)])
            self.real = torch.from_numpy(seen).to(device)
            self.where = self.where[self.real]


def near(items: Sequence[T], size: Callable[[T], int]) -> list[list[T]]:
    """As few groups as may be in which sizes differ by at most a factor of two."""
    groups: list[list[T]] = []
    for item in sorted(items, key=size):
        if groups and size(item) <= 2 * size(groups[-1][0]):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


class Forward(Protocol):
    """Ids and positions (N, on the model's device) to logits, N x vocabulary."""

    def __call__(self, run: Pass, ids: Tensor, positions: Tensor) -> Tensor: ...

    def prefill(self, run: Keeping, ids: Tensor, positions: Tensor) -> None:
        """No more than what the pass keeps: keys and values."""
        ...


class ModelForward:
    """Through transformers."""

    def __init__(self, model: Any) -> None:
        self._model = model
        # A mask that is already four-dimensional is passed on as it is: the passes do their own masking.
        self._no_mask = torch.empty(1, 1, 1, 1, device=model.device)

    def __call__(self, run: Pass, ids: Tensor, positions: Tensor, *, last: int = 0) -> Tensor:
        with attention_over(self._model.config, run):
            out = self._model(
                input_ids=ids[None],
                position_ids=positions[None],
                attention_mask=self._no_mask,
                use_cache=False,
                logits_to_keep=last,
            )
        logits: Tensor = out.logits[0]
        return logits

    def prefill(self, run: Keeping, ids: Tensor, positions: Tensor) -> None:
        self(run, ids, positions, last=1)


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

    def __call__(self, run: Pass, ids: Tensor, positions: Tensor) -> Tensor:
        with self._computing():
            x, _ = self._layers(run, ids, positions, len(self._model.model.layers))
            return _projected(self._model.lm_head, _normed(self._model.model.norm, x, fused=self._fused))

    def prefill(self, run: Keeping, ids: Tensor, positions: Tensor) -> None:
        """The last layer's attention and what follows it are nobody's keys."""
        with self._computing():
            *_, layer = self._model.model.layers
            number = len(self._model.model.layers) - 1
            x, rotation = self._layers(run, ids, positions, number)
            h, attention = _normed(layer.input_layernorm, x, fused=self._fused), layer.self_attn
            k, v = (_split(attention, each, h) for each in (attention.k_proj, attention.v_proj))
            run.store(number, _turned(k, rotation), v)

    def _layers(self, run: Pass, ids: Tensor, positions: Tensor, count: int) -> tuple[Tensor, Rotation]:
        """What leaves the first layers, and how queries and keys are turned in all of them."""
        decoder, normed = self._model.model, partial(_normed, fused=self._fused)
        x = decoder.embed_tokens(ids)
        cos, sin = decoder.rotary_emb(x[None], position_ids=positions[None])
        half = sin.shape[-1] // 2
        # (-b, a) * sin is (b, a) * (-sin, sin), to the bit.
        rotation = cos[0][:, None], torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1)[:, None]
        for number, layer in zip(range(count), decoder.layers, strict=False):
            h = _attended(run, number, layer.self_attn, normed(layer.input_layernorm, x), rotation)
            x = h.add_(x)
            h = normed(layer.post_attention_layernorm, x)
            mlp = layer.mlp
            h = mlp.act_fn(_projected(mlp.gate_proj, h)).mul_(_projected(mlp.up_proj, h))
            x = _projected(mlp.down_proj, h).add_(x)
        return x, rotation


Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of positions, the first half of the sines negative."""


def _attended(run: Pass, number: int, layer: Any, h: Tensor, rotation: Rotation) -> Tensor:
    q, k, v = (_split(layer, each, h) for each in (layer.q_proj, layer.k_proj, layer.v_proj))
    both, heads = _turned(torch.cat((q, k), 1), rotation), q.shape[1]
    out = run.attend(number, both[:, :heads], both[:, heads:], v, layer.scaling).to(q.dtype)
    return _projected(layer.o_proj, out.reshape(len(h), -1))


def _split(layer: Any, projection: Any, h: Tensor) -> Tensor:
    """N x heads x size."""
    return _projected(projection, h).view(len(h), -1, layer.head_dim)


def _turned(x: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), -1)
    return (x * cos).add_(swapped.mul_(sin))


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
    fused = LlamaForward(base, computing, fused=True)
    found = fused(probe, ids, positions)
    if close(own, found) if ids.is_cuda else torch.equal(own, found):
        return fused
    lean = LlamaForward(base, computing)
    return lean if torch.equal(own, lean(probe, ids, positions)) else plain


def close(expected: Tensor, found: Tensor) -> bool:
    """Up to what rounding does to logits."""
    slack = (2e-3 if expected.dtype == torch.float32 else 0.1) * max(1.0, float(expected.abs().max()))
    return float((expected.float() - found.float()).abs().max()) <= slack
