"""A Llama's forward in few launches: projections side by side in one product, the rest in `kernels`.

Projections that read the same input (queries, keys and values; gate and up) are one matrix product. Their weights
become neighbours in memory, and the model's own parameters are views of that, so sampler and trainer still have one
set of weights. Adapters are two small products more for each; their weights are copied in the model's precision when
they change. With `steady`, products are of blocks of rows of one size, so that a row's numbers do not depend on how
many others there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from baton.engine.torch.cuda.reads import Reads

_STEADY_ROWS = 64
MOST_JOINED = 512
"""Rows up to which a step's gates are computed with their products."""
_LONGEST = 1 << 17
"""Positions up to which a table of rotations is made."""


class Joined:
    """Linear layers that read the same input, as one product."""

    def __init__(self, layers: Sequence[Any], *, steady: bool) -> None:
        self._layers = list(layers)
        self._steady = steady
        self._weight: Tensor
        self._down: Tensor | None = None
        self._up: Tensor | None = None

    def refresh(self) -> bool:
        """Take up the layers' weights as they are now; whether what a recorded step reads is somewhere else."""
        weights = [_base(layer).weight for layer in self._layers]
        before = getattr(self, "_weight", None), self._down, self._up
        self._weight = _side_by_side(weights)
        moved = before[0] is None or before[0].data_ptr() != self._weight.data_ptr()
        factors = [_factors(layer) for layer in self._layers]
        if all(each is None for each in factors):
            self._down = self._up = None
        else:
            self._take_factors(factors)
        return moved or (self._down is None) != (before[1] is None)

    def _take_factors(self, factors: Sequence[tuple[Tensor, Tensor, float] | None]) -> None:
        like = self._weight
        ranks = [0 if each is None else len(each[0]) for each in factors]
        if self._down is None or self._up is None or len(self._down) != sum(ranks):
            self._down = like.new_zeros(sum(ranks), like.shape[1])
            self._up = like.new_zeros(sum(ranks), like.shape[0])
        row = column = 0
        for layer, rank, each in zip(self._layers, ranks, factors, strict=True):
            size = len(_base(layer).weight)
            if each is not None:
                down, up, scale = each
                self._down[row : row + rank].copy_(down)
                # Scaled before it is rounded: one operation less in every step.
                self._up[row : row + rank, column : column + size].copy_(up.t() * scale)
            row, column = row + rank, column + size

    @property
    def num_weights(self) -> int:
        return self._weight.numel()

    @property
    def alone(self) -> Tensor | None:
        """The weights, where the product is nothing but theirs: no adapters, no blocks of rows."""
        return None if self._steady or self._down is not None else self._weight

    def __call__(self, x: Tensor) -> Tensor:
        if not self._steady:
            return self._product(x)
        blocks = torch.split(pad(x, (0, 0, 0, -len(x) % _STEADY_ROWS)), _STEADY_ROWS)
        return torch.cat([self._product(each) for each in blocks])[: len(x)]

    def _product(self, x: Tensor) -> Tensor:
        out = torch.mm(x, self._weight.t())
        if self._down is not None and self._up is not None:
            out.addmm_(torch.mm(x, self._down.t()), self._up)
        return out


def _base(layer: Any) -> Any:
    return getattr(layer, "base_layer", layer)


def _factors(layer: Any) -> tuple[Tensor, Tensor, float] | None:
    found: tuple[Tensor, Tensor, float] | None = layer.factors() if hasattr(layer, "factors") else None
    return found


def _side_by_side(weights: Sequence[Tensor]) -> Tensor:
    """The weights under each other in one tensor, of which they are views from now on, if they are not yet."""
    if len(weights) == 1:
        return weights[0].detach()
    ends = [weight.data_ptr() + weight.nbytes for weight in weights]
    if all(end == weight.data_ptr() for end, weight in zip(ends, weights[1:], strict=False)) and all(
        weight.untyped_storage().data_ptr() == weights[0].untyped_storage().data_ptr() for weight in weights
    ):
        rows, columns = sum(map(len, weights)), weights[0].shape[1]
        return weights[0].detach().as_strided((rows, columns), (columns, 1))
    every = torch.cat([weight.detach() for weight in weights])
    for weight, part in zip(weights, torch.split(every, [len(weight) for weight in weights]), strict=True):
        weight.data = part
    return every


class _Layer:
    def __init__(self, layer: Any, steady: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.qkv = Joined([attention.q_proj, attention.k_proj, attention.v_proj], steady=steady)
        self.out = Joined([attention.o_proj], steady=steady)
        self.gate_up = Joined([mlp.gate_proj, mlp.up_proj], steady=steady)
        self.down = Joined([mlp.down_proj], steady=steady)
        self.norms = layer.input_layernorm, layer.post_attention_layernorm
        self.scale: float = attention.scaling

    @property
    def products(self) -> tuple[Joined, ...]:
        return self.qkv, self.out, self.gate_up, self.down


class FusedLlama:
    """Ids and positions of the queries of `Reads` to logits. Make one with `fused_of`."""

    def __init__(
        self,
        model: Any,
        ops: ModuleType,
        computing: Callable[[], AbstractContextManager[Any]],
        *,
        steady: bool,
        context: int,
    ) -> None:
        config = model.config
        self.heads = (
            config.num_attention_heads,
            config.num_key_value_heads,
            model.model.layers[0].self_attn.head_dim,
        )
        self.steady = steady
        self.ops = ops
        self._model = model
        self._computing = computing
        self._layers = [_Layer(layer, steady) for layer in model.model.layers]
        self._head = Joined([model.lm_head], steady=steady)
        self._rotation = _rotation(model, context)
        self._joins = model.dtype in (torch.bfloat16, torch.float16)
        """A step's gates are computed with their products; in float32 that would be slower."""
        self._others: list[int] = []
        """Where the weights were that no product has."""
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> bool:
        """Take up new weights; whether they are somewhere else than before."""
        with self._computing():
            products = [each for layer in self._layers for each in layer.products]
            moved = [each.refresh() for each in (*products, self._head)]
        decoder = self._model.model
        norms = [norm for layer in self._layers for norm in layer.norms]
        others = [each.weight.data_ptr() for each in (*norms, decoder.norm, decoder.embed_tokens)]
        before, self._others = self._others, others
        return any(moved) or before != others

    @property
    def num_weights(self) -> int:
        """Of its layers: what every token is multiplied by."""
        return sum(each.num_weights for layer in self._layers for each in layer.products)

    def __call__(self, ids: Tensor, positions: Tensor, reads: Reads) -> Tensor:
        """Logits of every query."""
        return self.logits(self.hidden(ids, positions, reads))

    def logits(self, hidden: Tensor) -> Tensor:
        """Of what `hidden` gave."""
        return self._head(hidden)

    def hidden(self, ids: Tensor, positions: Tensor, reads: Reads) -> Tensor:
        """What the vocabulary's product reads; keys and values are in place after it."""
        decoder, ops = self._model.model, self.ops
        x = embedding(ids, decoder.embed_tokens.weight)
        step = reads.single and not self.steady
        first = self._layers[0].norms[0]
        h = ops.add_norm(x, None, first.weight, first.variance_epsilon)
        after = [layer.norms[0] for layer in self._layers[1:]] + [decoder.norm]
        for number, (layer, norm) in enumerate(zip(self._layers, after, strict=True)):
            qkv = layer.qkv(h)
            if step:
                o = ops.turn_and_attend(qkv, self._rotation, positions, reads, number, layer.scale)
            else:
                q = ops.turn_and_keep(qkv, self._rotation, positions, reads, number)
                o = ops.attend(q, reads, number, layer.scale)
            o = layer.out(o)
            middle = layer.norms[1]
            h = ops.add_norm(x, o, middle.weight, middle.variance_epsilon)
            joined = layer.gate_up.alone if step and self._joins and len(ids) <= MOST_JOINED else None
            gated = ops.silu_mul(layer.gate_up(h)) if joined is None else ops.project_gate(h, joined)
            h = layer.down(gated)
            h = ops.add_norm(x, h, norm.weight, norm.variance_epsilon)
        found: Tensor = h
        return found


def _rotation(model: Any, context: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines by position, half a head wide: both halves are alike."""
    places = torch.arange(context, device=model.device)
    like = model.model.embed_tokens.weight[:1]
    cos, sin = model.model.rotary_emb(like[None], position_ids=places[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()


def fused_of(model: Any, ops: ModuleType, context: int, *, steady: bool = False) -> FusedLlama | None:
    """The fused forward of a model (or of one with an adapter), None where it is not plainly a Llama."""
    base = getattr(model, "base", model)
    if type(base) is not LlamaForCausalLM or context > _LONGEST or not _plain(base):
        return None
    return FusedLlama(base, ops, getattr(model, "computing", nullcontext), steady=steady, context=context)


def _plain(model: Any) -> bool:
    rope = getattr(model.model.rotary_emb, "rope_type", "default")
    if rope not in ("default", "linear", "llama3", "yarn"):
        return False  # others' rotations depend on how long the text is
    weights = {id(each): each for each in model.parameters()}
    if any(
        each.dtype != model.dtype for each in weights.values() if not each.requires_grad or each.ndim == 1
    ):
        return False
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        norms = layer.input_layernorm, layer.post_attention_layernorm
        if (
            any(type(norm) is not LlamaRMSNorm for norm in norms)
            or getattr(mlp.config, "hidden_act", "") != "silu"
        ):
            return False
        products = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.gate_proj,
                    mlp.up_proj, mlp.down_proj)  # fmt: skip
        if not all(_plain_product(each) for each in products):
            return False
    return type(model.model.norm) is LlamaRMSNorm and _plain_product(model.lm_head)


def _plain_product(layer: Any) -> bool:
    base = _base(layer)
    if type(base) is not nn.Linear or (layer is not base and not hasattr(layer, "factors")):
        return False
    return getattr(base, "bias", None) is None and bool(base.weight.is_contiguous())
