"""A tiny random Llama whose every step is float64, and the plain way to train rows with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tiny_model import tiny_model
from torch import Tensor, nn

from baton.forest.rows import Row


def exact_model(seed: int = 0, kv_heads: int = 2) -> Any:
    """transformers' norm computes in float32 whatever its input; torch's own does not."""
    model = tiny_model(seed=seed, kv_heads=kv_heads).double()
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "LlamaRMSNorm":
            norm = nn.RMSNorm(module.weight.shape[0], module.variance_epsilon, dtype=torch.float64)
            norm.weight = module.weight
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, norm)
    return model


def make_row(ids: list[int], prompt: int, *, rng: np.random.Generator, **names: Any) -> Row:
    """A row that trains everything after the prompt, with random advantages and sampler log-probs."""
    places = np.arange(prompt, len(ids), dtype=np.int32)
    return Row(
        ids=np.array(ids, np.int32),
        places=places,
        advantages=rng.normal(size=len(places)),
        sampler=-3 * rng.random(len(places)),
        weights=rng.random(len(places)) + 0.5,
        **names,
    )


def plain_logprobs(model: Any, row: Row) -> Tensor:
    """One row through the model's own forward, labels shifted by one: the reference."""
    ids = torch.from_numpy(row.ids).long()
    logits = model(input_ids=ids[None], use_cache=False).logits[0] / row.temperature
    places = torch.from_numpy(row.places).long()
    return torch.log_softmax(logits, -1)[places - 1, ids[places]]
