"""A model over a prefix forest: its layers attend through a pass, and edges get their log-probabilities.

The hidden states of p(i) are gathered for the trained edges before the vocabulary projection, which runs in
chunks, and again in backward if there are several, so no more than one chunk of logits exists at a time.

`check_forest` is the check before the first step: a few rows through the model's own forward must give the forest's
numbers. A mask that some layer dropped would train on tokens that other rows said, and every curve would still look
plausible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from baton.errors import BatonError, UsageError
from baton.forest.attention.cuda import CudaPass
from baton.forest.attention.parts import Attention, PartsPass, make_pass
from baton.forest.fused import llama, recorded
from baton.forest.fused.memory import Sizes, free_bytes, layers_kept
from baton.forest.fused.vocabulary import CHUNK, chosen_logprobs
from baton.forest.layout import Layout, PackedBatch, Packing, plant
from baton.forest.rows import Row

NAME = "baton_forest"
"""What the forest's attention is called in transformers' registry."""
FUSED = {"cuda"}
"""Devices on which a Llama's layers and its vocabulary are `fused`: on a CPU that saves a twentieth at most."""


class ForestPass(Protocol):
    """One forward and backward over a layout. N tokens, H heads, K key-value heads, D their size."""

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        """The attention output, N x H x D."""
        ...


_running: dict[int, ForestPass] = {}


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
def tree_attention(model: Any, current: ForestPass) -> Iterator[None]:
    """Layers of `model` attend through `current` in the body: forward, and backward.

    The pass is found by the model's configuration object, not by thread: with gradient checkpointing the layers run
    again inside backward, which torch does on another thread. So the body must hold the backward pass too; a layer that
    runs outside of it is an error rather than a silently dropped mask.
    """
    config = model.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = NAME
    _running[id(config)] = current
    try:
        yield
    finally:
        del _running[id(config)]
        config._attn_implementation = before


def hidden_states(
    model: Any, layout: Layout, *, num_edges: int = 0, at: NDArray[np.int64] | None = None
) -> Tensor:
    """N x width, inside `tree_attention`. `num_edges`: of how many logits will be made, which need room too.

    `at`: of these tokens alone, in rising order.
    """
    device = model.device
    both = np.stack((layout.ids, layout.depth)).astype(np.int64)
    if device.type in FUSED and llama.is_llama(model):
        kept = None
        current = _running[id(model.get_decoder().config)]
        if torch.is_grad_enabled() and (free := free_bytes(device)) is not None:
            sizes = Sizes.of(getattr(model, "base", model))
            kept = layers_kept(sizes, layout.num_tokens, num_edges, free)
            if (
                isinstance(current, CudaPass)
                and kept == sizes.layers
                and recorded.worth(sizes, layout.num_tokens, device)
            ):
                with suppress(llama.NotPlain):
                    if (found := recorded.hidden_states(model, layout)) is not None:
                        return found if at is None else found.index_select(0, torch.from_numpy(at).to(device))
        ids, positions = torch.from_numpy(both).to(device)
        with suppress(llama.NotPlain):
            every = llama.hidden_states(model, current, ids, positions, kept=kept)
            return every if at is None else every.index_select(0, torch.from_numpy(at).to(device))
    ids, positions = torch.from_numpy(both).to(device)
    if device.type == "cpu" and at is not None and _is_bare(model):
        return _hidden_at(model, ids, positions, torch.from_numpy(at))
    out = model.get_decoder()(
        input_ids=ids[None],
        position_ids=positions[None],
        # Four dimensions mean "made already", so that no model makes a mask of its own.
        attention_mask=torch.empty(1, 1, 1, 1, device=device),
        use_cache=False,
    )
    hidden: Tensor = out.last_hidden_state[0]
    return hidden if at is None else hidden.index_select(0, torch.from_numpy(at).to(device))


def _is_bare(model: Any) -> bool:
    """A Llama whose layers are nothing but their parts, so that these may be called one by one."""
    base = getattr(model, "base", model)
    if type(base) is not LlamaForCausalLM or base.config.attention_dropout:
        return False
    decoder = base.model
    if decoder.gradient_checkpointing and decoder.training:
        return False
    every = [module for layer in decoder.layers for module in (layer, layer.self_attn, layer.mlp)]
    return not any(
        each._forward_hooks or each._forward_pre_hooks or each._backward_hooks or "forward" in each.__dict__
        for each in (base, decoder, *every)
    )


def _hidden_at(model: Any, ids: Tensor, positions: Tensor, at: Tensor) -> Tensor:
    """As the model's own layers compute it; the last of them only for the tokens that are asked for."""
    base = getattr(model, "base", model)
    decoder = base.get_decoder()
    current = _running[id(model.get_decoder().config)]
    with getattr(model, "computing", nullcontext)():
        x = decoder.embed_tokens(ids)
        rotation = decoder.rotary_emb(x[None], position_ids=positions[None])
        for layer in decoder.layers:
            attention = layer.self_attn
            h = layer.input_layernorm(x)
            q, k, v = (
                each(h).view(1, len(ids), -1, attention.head_dim).transpose(1, 2)
                for each in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            q, k = apply_rotary_pos_emb(q, k, *rotation)
            q, k, v = (each[0].transpose(0, 1) for each in (q, k, v))
            if layer is not decoder.layers[-1]:
                h = current.attend(q, k, v, attention.scaling)
            else:
                x = x.index_select(0, at)
                if isinstance(current, PartsPass):
                    h = current.attend(q, k, v, attention.scaling, at)
                else:
                    h = current.attend(q, k, v, attention.scaling).index_select(0, at)
            x = x + attention.o_proj(h.flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        hidden: Tensor = decoder.norm(x)
    return hidden


def project(
    head: Any, hidden_EW: Tensor, target_E: Tensor, temperature_E: Tensor | None, *, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of each target, and the entropy of its distribution where asked for."""
    vocab = head.weight.shape[0]
    plain = type(head) is nn.Linear and getattr(head, "bias", None) is None and not head._forward_hooks
    if plain and not entropy and hidden_EW.device.type in FUSED:
        return chosen_logprobs(head.weight, hidden_EW, target_E, temperature_E), None
    size = max(1, CHUNK.get(hidden_EW.device.type, 1 << 23) // vocab)
    found: list[tuple[Tensor, Tensor | None]] = []
    for at in range(0, len(target_E), size):
        part = slice(at, at + size)
        temperature = None if temperature_E is None else temperature_E[part]
        args = (head, hidden_EW[part], target_E[part], temperature, entropy)
        if len(target_E) <= size:  # one chunk may as well wait for backward, which begins with it
            found.append(_chunk(*args))
        else:
            found.append(checkpoint(_chunk, *args, use_reentrant=False, preserve_rng_state=False))
    logprobs = torch.cat([each[0] for each in found])
    return logprobs, torch.cat([each[1] for each in found if each[1] is not None]) if entropy else None


def edge_logprobs(
    model: Any, batch: PackedBatch, layout: Layout, *, entropy: bool = False, hidden: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """E log-probabilities (and entropies). `layout` is the pass's own: the batch's, perhaps padded; `hidden` its
    hidden states, where they are computed already.

    Backward belongs into the same `tree_attention` as this call, so it is entered by the caller.
    """
    head = model.get_output_embeddings()
    source: NDArray[np.integer[Any]] = batch.layout.parent[batch.edge]
    if hidden is None:
        at = None
        if model.device.type == "cpu":  # what nobody reads is not computed
            at, source = np.unique(source.astype(np.int64), return_inverse=True)
        hidden = hidden_states(model, layout, num_edges=len(batch.edge), at=at)
    device = hidden.device
    edges = torch.from_numpy(np.stack((source, batch.layout.ids[batch.edge])).astype(np.int64))
    if device.type == "cuda":
        edges = edges.pin_memory()  # does not wait for the layers
    where, target = edges.to(device, non_blocking=True)
    temperature = None
    if (batch.temperature != 1).any():
        temperature = torch.from_numpy(batch.temperature).to(device)
    return project(head, hidden.index_select(0, where), target, temperature, entropy=entropy)


def _chunk(
    head: Any, hidden: Tensor, target: Tensor, temperature: Tensor | None, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    logits = head(hidden)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    if temperature is not None:
        logits = logits / temperature[:, None].to(logits.dtype)
    total = torch.logsumexp(logits, -1)
    chosen = logits.gather(-1, target[:, None])[:, 0] - total
    if not entropy:
        return chosen, None
    return chosen, total - (torch.softmax(logits, -1) * logits).sum(-1)


SLACK = {torch.float64: 1e-5, torch.float32: 2e-3}
"""Relative difference that rounding explains (norms compute in float32 at best)."""
HALF_SLACK = 0.5
"""In bfloat16 a 1.7B model differs by 3.5 %, however its rows are packed, and one that was trained to be sure by up to
20 %; without the mask they differ by over 100 %."""


class ForestError(BatonError):
    """The packed forward pass is not the model's own."""


@torch.no_grad()
def check_forest(
    model: Any, rows: Sequence[Row], packing: Packing, attention: Attention = "auto", *, num_rows: int = 3
) -> float:
    """The largest relative difference found; raises when it is more than rounding.

    The rows checked are those after another branch in the buffer, where a dropped mask shows. Hidden states are
    compared (log-probabilities of an untrained model hardly depend on context), and log-probabilities too, because a
    model may do more than its vocabulary projection.
    """
    layout, at = plant(rows, packing)
    later = sorted(range(len(rows)), key=lambda r: (-int(at[r][-1] - rows[r].places[-1]), len(rows[r].ids)))
    chosen = later[:num_rows]
    current = make_pass(layout, model.dtype, model.device, attention)
    read = np.unique(np.concatenate([layout.parent[at[r]] for r in chosen]).astype(np.int64))
    with tree_attention(model, current):
        hidden = hidden_states(model, current.layout, at=read)
    worst = 0.0
    for r in chosen:
        row = rows[r]
        ids = torch.from_numpy(row.ids).to(model.device, torch.long)
        own = model.get_decoder()(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        places = torch.from_numpy(row.places).to(model.device, torch.long)
        source = torch.from_numpy(np.searchsorted(read, layout.parent[at[r]])).to(model.device)
        worst = max(worst, _apart(hidden[source], own[places - 1]))
        logits = model(input_ids=ids[None], use_cache=False).logits[0][places - 1]
        plain = torch.log_softmax(logits.float() if logits.dtype != torch.float64 else logits, -1)
        ours, _ = project(model.get_output_embeddings(), hidden[source], ids[places], None)
        worst = max(worst, _apart(ours, plain.gather(-1, ids[places][:, None])[:, 0]))
    if not worst <= SLACK.get(model.dtype, HALF_SLACK):
        raise ForestError(
            f"the packed forward pass of {type(model).__name__} differs from its own forward by {worst:.1%} "
            f"on {len(chosen)} rows: a layer ignores the prefix forest's mask or positions. "
            "Set packing='rows' and attention='parts', or train a decoder with full attention."
        )
    return worst


def _apart(a: Tensor, b: Tensor) -> float:
    """Against b's size, and at least a tenth for each number: what a sure model says has log-probabilities of nearly
    zero, whose rounding is no difference."""
    return float((a - b).norm() / b.norm().clamp(min=0.1 * b.numel() ** 0.5))
