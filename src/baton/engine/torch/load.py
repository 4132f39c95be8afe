"""Opening a model: from a folder or from memory, with the checks that make later answers trustworthy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.model_places import MODEL_FILES, check_dtype_name, check_folder, unknown_dtype
from baton.engine.torch.batch import Compute, EngineLimits, PooledCompute
from baton.engine.torch.cache import KVShape, Node, PrefixCache
from baton.engine.torch.flat import FlatPass, prefill_pass
from baton.engine.torch.forward import Forward, ModelForward, close, forward_of
from baton.engine.torch.passes import PrefillPass
from baton.errors import UsageError


def check_dtype(dtype: str | None) -> None:
    """That it is one that this torch has, of numbers with a point."""
    check_dtype_name(dtype)
    kind = torch.float32 if dtype is None else getattr(torch, dtype, None)
    if not (isinstance(kind, torch.dtype) and kind.is_floating_point):
        raise unknown_dtype(str(dtype))


_HERE = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is downloaded, and no code of the folder's runs; unset, transformers would ask whether it may."""


def open_folder(folder: str | Path, device: str, dtype: str | None) -> tuple[Any, Any]:
    """Model and tokenizer of a Hugging Face folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    check_folder(folder)
    check_dtype(dtype)
    path = Path(folder)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype="auto" if dtype is None else getattr(torch, dtype), **_HERE
        )
        tokenizer = AutoTokenizer.from_pretrained(path, **_HERE)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"{str(folder)!r} cannot be opened as a causal LM: {first} {MODEL_FILES}") from error
    return model.to(device), tokenizer


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a turn: the model's, its generation settings' and the tokenizer's."""
    found: set[int] = set()
    for given in (
        getattr(getattr(model, "generation_config", None), "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
    ):
        found |= {given} if isinstance(given, int) else set(given or ())
    return frozenset(found)


def context_length(model: Any) -> int:
    """How many tokens the model's positions allow."""
    return int(getattr(model.config, "max_position_embeddings", None) or 2**20)


class _Probe:
    """A pass that only looks at what the layers bring."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[int, int]] = {}

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:  # noqa: ARG002  # the protocol's
        self.layers[layer] = (k_NKD.shape[1], k_NKD.shape[2])
        return torch.zeros_like(q_NHD)


@torch.inference_mode()
def kv_shape(model: Any) -> KVShape:
    """The shape of the keys and values, as the layers really make them."""
    kinds = {kind for kind in getattr(model.config, "layer_types", None) or () if kind != "full_attention"}
    probe = _Probe()
    if not kinds:
        try:
            ModelForward(model)(probe, *torch.zeros(2, 1, dtype=torch.long, device=model.device))
        except NotImplementedError as error:
            kinds = {str(error)}
    if kinds or len(probe.layers) != model.config.num_hidden_layers or len(set(probe.layers.values())) != 1:
        raise UsageError(
            "the torch engine serves decoders with full attention in every layer; "
            f"{type(model).__name__} has {', '.join(sorted(kinds)) or 'layers of another kind'}. "
            "Serve it with vLLM and use openai:MODEL@URL."
        )
    heads, size = probe.layers[0]
    return KVShape(len(probe.layers), heads, size, model.dtype, model.device)


@torch.inference_mode()
def checked_forward(model: Any, shape: KVShape) -> Forward:
    """The model's forward. A short prompt in two stretches through the engine's attention must give its own logits."""
    ids = _probe_ids(model)
    own = model(input_ids=torch.from_numpy(ids).to(model.device, torch.long)[None], use_cache=False).logits[
        0, -1
    ]
    if not torch.isfinite(own).all():
        return ModelForward(model)  # damaged weights are reported call by call
    node, _ = PrefixCache(0, 5).plant(ids)
    run = PrefillPass(node.chain(), shape)
    forward = forward_of(model, run, *run.inputs())
    ours = forward(run, *run.inputs())[-1]
    if not close(own, ours):
        raise UsageError(
            f"the torch engine's attention does not reproduce {type(model).__name__}'s logits. "
            "Serve this model with vLLM and use openai:MODEL@URL."
        )
    return forward


def compute_of(model: Any, shape: KVShape, limits: EngineLimits) -> Compute:
    """The fastest way to compute this model that gives its own logits for a short prompt."""
    forward = checked_forward(model, shape)
    if shape.device.type == "cuda":
        from baton.engine.torch.cuda.pointed import pointed_of

        found = pointed_of(model, shape, context_length(model), steady=limits.steady)
        if found is not None and _agrees(found, model, forward, shape):
            return found
    if limits.steady:
        raise UsageError(
            "limits.steady needs a GPU, Triton and a Llama in its plain form; "
            f"here is {type(getattr(model, 'base', model)).__name__} on {shape.device.type}. Leave it out."
        )
    prefill = checked_prefill(model, forward, shape)
    return PooledCompute(model, shape, forward, prefill, shared_reads=limits.shared_reads)


@torch.inference_mode()
def _agrees(compute: Any, model: Any, forward: Forward, shape: KVShape) -> bool:
    """That a prompt in two stretches gives the same logits as through the model's own layers."""
    ids = _probe_ids(model)
    chain = PrefixCache(0, 5).plant(ids)[0].chain()
    run = PrefillPass(chain, shape)
    own = forward(run, *run.inputs())[-1]
    if not torch.isfinite(own).all():
        return False
    try:
        return close(own, compute.probe(chain))
    except Exception:  # whatever a kernel's compiler has against this model or chip
        return False


@torch.inference_mode()
def checked_prefill(model: Any, forward: Forward, shape: KVShape) -> Callable[..., PrefillPass | FlatPass]:
    """How to prefill: on a GPU in few calls, if its kernels give what they give in many."""
    if shape.device.type != "cuda":
        return PrefillPass
    chain = PrefixCache(0, 5).plant(_probe_ids(model))[0].chain()
    return prefill_pass if _agree(forward, chain, shape) else PrefillPass


def _agree(forward: Forward, chain: Sequence[Node], shape: KVShape) -> bool:
    try:
        runs = PrefillPass(chain, shape), FlatPass(chain, shape)
        return close(*(forward(run, *run.inputs())[-1] for run in runs))
    except RuntimeError:  # a kernel that is not there, or refuses these sizes
        return False


def _probe_ids(model: Any) -> NDArray[np.int32]:
    # Ordinary tokens: on a row of special ones, which the first ids often are, half precision alone differs.
    size = model.config.vocab_size
    ids: NDArray[np.int32] = ((size // 4 + 7 * np.arange(8)) % size).astype(np.int32)
    return ids
