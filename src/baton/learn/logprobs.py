"""Log-probabilities on the edges of a packed batch, one forward pass, the vocabulary only where it is needed.

The hidden states of p(i) are gathered for the trained edges before the vocabulary projection, which runs in
chunks, and again in backward if there are several, so no more than one chunk of logits exists at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from baton.learn.batch import Batch
from baton.learn.layout import Layout

__all__ = ["edge_logprobs", "hidden_states", "project"]

CHUNK = {"cpu": 1 << 23, "cuda": 1 << 27}
"""Logits at a time."""


def hidden_states(model: Any, layout: Layout) -> Tensor:
    """N x width, inside `tree_attention`."""
    device = model.device
    out = model.get_decoder()(
        input_ids=torch.from_numpy(layout.ids).to(device, torch.long)[None],
        position_ids=torch.from_numpy(layout.depth).to(device, torch.long)[None],
        # Four dimensions mean "made already", so that no model makes a mask of its own.
        attention_mask=torch.empty(1, 1, 1, 1, device=device),
        use_cache=False,
    )
    hidden: Tensor = out.last_hidden_state[0]
    return hidden


def project(
    head: Any, hidden_EW: Tensor, target_E: Tensor, temperature_E: Tensor | None, *, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of each target, and the entropy of its distribution where asked for."""
    vocab = head.weight.shape[0]
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
    model: Any, batch: Batch, layout: Layout, *, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """E log-probabilities (and entropies). `layout` is the pass's own: the batch's, perhaps padded.

    Backward belongs into the same `tree_attention` as this call, so it is entered by the caller.
    """
    hidden = hidden_states(model, layout)
    device = hidden.device
    source = torch.from_numpy(batch.layout.parent[batch.edge]).to(device)
    target = torch.from_numpy(batch.layout.ids[batch.edge]).to(device, torch.long)
    temperature = None
    if (batch.temperature != 1).any():
        temperature = torch.from_numpy(batch.temperature).to(device)
    return project(
        model.get_output_embeddings(), hidden.index_select(0, source), target, temperature, entropy=entropy
    )


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
