"""A Llama's layers over a forest pass, with a backward of their own.

transformers' layers are dozens of small operations, each with its node of the autograd graph and what it keeps for
backward. Here a layer is three nodes: what is before attention (norm, queries, keys and values, turning), attention,
and what is after it (projection, norm, gated products). Products that read the same input are one, over weights that
become neighbours in memory, of which the model's own parameters are views: there is one set of weights, whoever uses
it. What is added to the residual stream is added where it is normed. Kept for backward are a layer's input, its two
norms, queries, keys and values, attention's output and the gate's input; the gate's output is computed again.

Adapters (layers with `factors`, see `baton.learn.lora`) are two small products more; the base's weights get no gradient
then. Models that are not plainly Llamas go through transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.utils.checkpoint import checkpoint
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from baton.forest.fused import ops_for


class Attends(Protocol):
    """What computes attention over a layout. N tokens, H heads, K of keys and values, D their size."""

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        """The attention output, N x H x D."""
        ...


class NotPlain(Exception):
    """A model's layers are not those of a Llama by itself; transformers computes them."""


class Product:
    """Linear layers that read the same input, as one product, with the adapters that are active."""

    def __init__(self, layers: Sequence[Any]) -> None:
        bases = [_base(layer).weight for layer in layers]
        self.weight = side_by_side(bases)
        self._sizes = [len(weight) for weight in bases]
        self._learned = [weight.requires_grad for weight in bases]
        found = [layer.factors() if hasattr(layer, "factors") else None for layer in layers]
        self._factors = [each for each in found if each is not None]
        factors = [each for down, up, _ in self._factors for each in (down, up)]
        self.learned: list[Tensor] = [*bases, *factors]
        """What may get a gradient, in the order of `backward`'s."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The product, and what the adapters' small ones gave, side by side."""
        out = torch.mm(x, self.weight.t())
        if not self._factors:
            return out, None
        small = torch.mm(x, self._downs(x.dtype).t())
        for y, t, (_, up, scale) in self._parts(out, small):
            y.addmm_(t, up.to(x.dtype).t(), alpha=scale)
        return out, small

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradient of what was read, and that of the adapters' small products."""
        found = torch.mm(grad, self.weight)
        if not self._factors:
            return found, None
        columns = zip(torch.split(grad, self._sizes, 1), self._factors, strict=True)
        inner = torch.cat([torch.mm(g, up.to(g.dtype) * scale) for g, (_, up, scale) in columns], 1)
        return found.addmm_(inner, self._downs(grad.dtype)), inner

    def learn(
        self, grad: Tensor, x: Tensor, small: Tensor | None, inner: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients of `learned`."""
        found: list[Tensor | None] = [None] * len(self._sizes)
        if any(self._learned):
            parts = torch.split(torch.mm(grad.t(), x), self._sizes)
            found = [part if on else None for part, on in zip(parts, self._learned, strict=True)]
        if small is not None and inner is not None:
            downs = torch.split(torch.mm(inner.t(), x), self._ranks)
            for one, (g, t, (down, up, scale)) in zip(downs, self._parts(grad, small), strict=True):
                found += [one.to(down.dtype), torch.mm(g.t(), t).mul_(scale).to(up.dtype)]
        return found

    @property
    def _ranks(self) -> list[int]:
        return [len(down) for down, _, _ in self._factors]

    def _downs(self, dtype: torch.dtype) -> Tensor:
        return torch.cat([down.to(dtype) for down, _, _ in self._factors])

    def _parts(self, y: Tensor, small: Tensor) -> Iterator[tuple[Tensor, Tensor, Any]]:
        """Of each layer: its columns, its adapter's, and the adapter."""
        columns = torch.split(y, self._sizes, 1), torch.split(small, self._ranks, 1)
        return zip(*columns, self._factors, strict=True)


def side_by_side(weights: Sequence[Tensor]) -> Tensor:
    """The weights under each other in one tensor, of which they are views from now on, if they are not yet."""
    if len(weights) == 1:
        return weights[0].detach()
    ends = [weight.data_ptr() + weight.nbytes for weight in weights]
    storage = weights[0].untyped_storage().data_ptr()
    near = all(end == weight.data_ptr() for end, weight in zip(ends, weights[1:], strict=False))
    if near and all(weight.untyped_storage().data_ptr() == storage for weight in weights):
        rows, columns = sum(map(len, weights)), weights[0].shape[1]
        return weights[0].detach().as_strided((rows, columns), (columns, 1))
    every = torch.cat([weight.detach() for weight in weights])
    for weight, part in zip(weights, torch.split(every, [len(weight) for weight in weights]), strict=True):
        weight.data = part
    return every


def _base(layer: Any) -> Any:
    return getattr(layer, "base_layer", layer)


class Norm(NamedTuple):
    """A norm's weight and what it adds under the root."""

    weight: Tensor
    eps: float

    @classmethod
    def of(cls, norm: Any) -> Norm:
        """torch's and transformers' call it differently; None is the precision's own."""
        eps = norm.variance_epsilon if isinstance(norm, LlamaRMSNorm) else norm.eps
        return cls(norm.weight, torch.finfo(norm.weight.dtype).eps if eps is None else eps)


class Layer(NamedTuple):
    """What a layer is made of."""

    qkv: Product
    out: Product
    gate_up: Product
    down: Product
    first: Norm
    second: Norm
    scale: float
    heads: tuple[int, int, int]
    """Of queries, of keys and values; and the size of each."""

    @classmethod
    def of(cls, layer: Any, heads: tuple[int, int]) -> Layer:
        """Of transformers' layer; raises `NotPlain` where it is not what a Llama has by itself."""
        if not _is_plain_layer(layer):
            raise NotPlain
        now = _signature(layer)
        before, made = _made.get(layer, (None, None))
        if made is not None and before == now:
            return made
        attention, mlp = layer.self_attn, layer.mlp
        made = cls(
            Product([attention.q_proj, attention.k_proj, attention.v_proj]),
            Product([attention.o_proj]),
            Product([mlp.gate_proj, mlp.up_proj]),
            Product([mlp.down_proj]),
            Norm.of(layer.input_layernorm),
            Norm.of(layer.post_attention_layernorm),
            attention.scaling,
            (*heads, attention.head_dim),
        )
        _made[layer] = _signature(layer), made  # weights may have moved beside each other
        return made

    def run(
        self, ops: ModuleType, current: Attends, rotation: tuple[Tensor, Tensor], x: Tensor, h: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The residual stream, and what is still to be added to it."""
        x, q, k, v = _Before.apply(ops, self, rotation, x, h, self.first.weight, *self.qkv.learned)  # type: ignore[no-untyped-call]  # torch's
        attended = current.attend(q, k, v, self.scale)
        learned = *self.out.learned, *self.gate_up.learned, *self.down.learned
        x, h = _After.apply(ops, self, x, attended, self.second.weight, *learned)  # type: ignore[no-untyped-call]  # torch's
        return x, h


_made: WeakKeyDictionary[nn.Module, tuple[Any, Layer]] = WeakKeyDictionary()
"""What layers were made of when they last took part: a small model's update is bound by what the host does."""


def _signature(layer: Any) -> list[Any]:
    """What `Layer.of` depends on: which modules there are, where their weights are, and which adapter is active."""
    attention, mlp = layer._modules["self_attn"]._modules, layer._modules["mlp"]._modules
    found: list[Any] = [id(layer._modules[name]) for name in ("input_layernorm", "post_attention_layernorm")]
    for each in (*map(attention.__getitem__, _ATTENTION), *map(mlp.__getitem__, _MLP)):
        weight = each._modules.get("base_layer", each)._parameters["weight"]
        own = each.__dict__
        found += [id(each), weight.data_ptr(), weight.requires_grad]
        found += [own.get("_disable_adapters"), *own.get("_active_adapter", ())]
    return found


_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


class _Before(torch.autograd.Function):
    """Norm, queries, keys and values, turned."""

    @staticmethod
    def forward(
        ctx: Any, ops: Any, layer: Layer, rotation: Any, x: Tensor, h: Tensor | None, *_: Tensor
    ) -> Any:
        x, normed, scale = ops.norm(x, h, *layer.first)
        qkv, small = layer.qkv.forward(normed)
        heads, kv_heads, size = layer.heads
        both = qkv.view(len(x), -1, size)
        ops.turn(both, *rotation, heads + kv_heads)
        ctx.save_for_backward(x, normed, scale, small)
        ctx.ops, ctx.layer, ctx.rotation, ctx.added = ops, layer, rotation, h is not None
        return x, *torch.split(both, [heads, kv_heads, kv_heads], 1)

    @staticmethod
    def backward(ctx: Any, dx: Tensor, dq: Tensor, dk: Tensor, dv: Tensor) -> Any:
        x, normed, scale, small = ctx.saved_tensors
        layer: Layer = ctx.layer
        grad = ctx.ops.turn_backward(dq, dk, dv, *ctx.rotation).flatten(1)
        before, inner = layer.qkv.backward(grad)
        learned = layer.qkv.learn(grad, normed, small, inner)
        weight = layer.first.weight
        found, own = ctx.ops.norm_backward(before, dx, x, weight, scale, weighed=weight.requires_grad)
        return None, None, None, found, found if ctx.added else None, own, *learned


class _After(torch.autograd.Function):
    """The projection of what was attended to, norm, and the gated products."""

    @staticmethod
    def forward(ctx: Any, ops: Any, layer: Layer, x: Tensor, attended: Tensor, *_: Tensor) -> Any:
        flat = attended.flatten(1)
        out, small_out = layer.out.forward(flat)
        x, normed, scale = ops.norm(x, out, *layer.second)
        both, small_both = layer.gate_up.forward(normed)
        down, small_down = layer.down.forward(ops.gate(both))
        ctx.save_for_backward(flat, small_out, x, normed, scale, both, small_both, small_down)
        ctx.ops, ctx.layer = ops, layer
        return x, down

    @staticmethod
    def backward(ctx: Any, dx: Tensor, grad: Tensor) -> Any:
        flat, small_out, x, normed, scale, both, small_both, small_down = ctx.saved_tensors
        layer: Layer = ctx.layer
        before, inner = layer.down.backward(grad)
        before, gated = ctx.ops.gate_backward(before, both)
        down = layer.down.learn(grad, gated, small_down, inner)
        del gated
        found, inner = layer.gate_up.backward(before)
        gate_up = layer.gate_up.learn(before, normed, small_both, inner)
        weight = layer.second.weight
        found, own = ctx.ops.norm_backward(found, dx, x, weight, scale, weighed=weight.requires_grad)
        before, inner = layer.out.backward(found)
        out = layer.out.learn(found, flat, small_out, inner)
        heads, _, size = layer.heads
        return None, None, found, before.view(-1, heads, size), own, *out, *gate_up, *down


class _Last(torch.autograd.Function):
    """The norm after the last layer."""

    @staticmethod
    def forward(ctx: Any, ops: Any, norm: Norm, x: Tensor, h: Tensor, _: Tensor) -> Tensor:
        x, normed, scale = ops.norm(x, h, *norm)
        ctx.save_for_backward(x, scale)
        ctx.ops, ctx.norm = ops, norm
        found: Tensor = normed
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, scale = ctx.saved_tensors
        weight = ctx.norm.weight
        found, own = ctx.ops.norm_backward(grad, None, x, weight, scale, weighed=weight.requires_grad)
        return None, None, found, found, own


def hidden_states(
    model: Any, current: Attends, ids: Tensor, positions: Tensor, *, kept: int | None = None
) -> Tensor:
    """What the vocabulary's product reads, N x width. Layers after the first `kept` are computed again in backward."""
    base = getattr(model, "base", model)
    decoder, ops = base.model, ops_for(ids.device)
    config = base.config
    heads = config.num_attention_heads, config.num_key_value_heads
    with getattr(model, "computing", nullcontext)():
        table = decoder.embed_tokens  # what it pads with learns nothing
        x, h = embedding(ids, table.weight, table.padding_idx), None
        cos, sin = decoder.rotary_emb(x[None], position_ids=positions[None])
        half = cos.shape[-1] // 2
        rotation = cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
        for number, each in enumerate(decoder.layers):
            layer = Layer.of(each, heads)  # one after the other: a GPU computes meanwhile
            given = ops, current, rotation, x, h
            if kept is None or number < kept or not torch.is_grad_enabled():
                x, h = layer.run(*given)
            else:
                x, h = checkpoint(layer.run, *given, use_reentrant=False, preserve_rng_state=False)
        norm = Norm.of(decoder.norm)
        found: Tensor = _Last.apply(ops, norm, x, h, norm.weight)  # type: ignore[no-untyped-call]  # torch's
    return found


def is_llama(model: Any) -> bool:
    """Whether a model (or one with adapters) is a Llama; each layer is looked at when it is its turn (`Layer.of`)."""
    base = getattr(model, "base", model)
    if type(base) is not LlamaForCausalLM or bool(base.config.attention_dropout):
        return False
    return not _hooked(base) and not _hooked(base.model) and _is_norm(base.model.norm)


def _is_plain_layer(layer: Any) -> bool:
    modules = layer._modules
    attention, mlp = modules["self_attn"], modules["mlp"]
    norms = modules["input_layernorm"], modules["post_attention_layernorm"]
    if any(map(_hooked, (layer, attention, mlp))) or not all(map(_is_norm, norms)):
        return False
    if getattr(mlp.config, "hidden_act", "") != "silu":
        return False
    q, k, v, o = map(attention._modules.__getitem__, _ATTENTION)
    gate, up, down = map(mlp._modules.__getitem__, _MLP)
    # Of products that become one, all have adapters or none has.
    alike = all(
        len({hasattr(each, "factors") for each in products}) == 1 for products in ((q, k, v), (gate, up))
    )
    return alike and all(map(_is_product, (q, k, v, o, gate, up, down)))


def _is_norm(norm: Any) -> bool:
    return type(norm) in (LlamaRMSNorm, nn.RMSNorm) and not _hooked(norm)


def _is_product(layer: Any) -> bool:
    base = layer._modules.get("base_layer", layer)
    if type(base) is not nn.Linear or _hooked(base) or (layer is not base and not hasattr(layer, "factors")):
        return False
    weight = base._parameters["weight"]
    return base._parameters.get("bias") is None and weight is not None and weight.is_contiguous()


def _hooked(layer: nn.Module) -> bool:
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or "forward" in layer.__dict__
    )
