from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row
from tiny_model import tiny_model
from torch import Tensor

from baton.errors import UsageError
from baton.forest import logprobs
from baton.forest.attention.parts import PartsPass
from baton.forest.logprobs import ForestError, check_forest
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed

RNG = np.random.default_rng(0)
ROWS = [make_row([*range(20), i, *range(30, 36)], 20, rng=RNG, sample=str(i)) for i in range(4)]


@pytest.mark.parametrize(
    "model", [tiny_model(), exact_model(), tiny_model().bfloat16()], ids=["f32", "f64", "bf16"]
)
def test_an_honest_model_passes(model: Any) -> None:
    for packing in ("forest", "merged", "rows"):
        check_forest(model, ROWS, packing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dropped_mask_is_caught_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    def causal_only(
        self: PartsPass, q: Tensor, k: Tensor, v: Tensor, scale: float, at: Tensor | None = None
    ) -> Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=True
        )
        return out[0].transpose(0, 1) if at is None else out[0].transpose(0, 1)[at]

    monkeypatch.setattr(PartsPass, "attend", causal_only)
    model = tiny_model().to(dtype)
    with pytest.raises(ForestError, match="ignores the prefix forest's mask"):
        Gradients(model, Loss(), Packed(packing="forest")).backward(ROWS)
    assert all(p.grad is None for p in model.parameters())


def test_positions_that_are_ignored_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from baton.forest import layout

    real = layout._forest

    def shifted(*args: Any) -> Any:
        made, at = real(*args)
        made.depth[:] = np.arange(len(made.depth))
        return made, at

    monkeypatch.setattr(layout, "_forest", shifted)
    with pytest.raises(ForestError):
        check_forest(tiny_model(), ROWS, "forest")


def test_a_head_that_does_more_is_caught() -> None:
    model = tiny_model()
    forward = model.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        out.logits = out.logits * 0.5
        return out

    model.forward = scaled
    with pytest.raises(ForestError):
        check_forest(model, ROWS, "forest")


def test_the_models_own_attention_is_back_afterwards() -> None:
    model = tiny_model()
    before = model.config._attn_implementation
    check_forest(model, ROWS, "forest")
    assert model.config._attn_implementation == before
    assert not logprobs._running


def test_dropout_is_refused() -> None:
    model = tiny_model()
    model.model.layers[0].mlp.add_module("dropout", torch.nn.Dropout(0.1))
    model.train()
    with pytest.raises(UsageError, match="dropout"):
        Gradients(model, Loss()).backward(ROWS)


def test_sliding_windows_are_refused() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=64, sliding_window=4, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with pytest.raises(UsageError, match="sliding_window"):
        check_forest(MistralForCausalLM(config), ROWS, "forest")
