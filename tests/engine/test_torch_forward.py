"""The short way through a Llama gives the very numbers of the long one, and is taken only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from tiny_model import tiny_model
from torch import Tensor, nn
from transformers import MistralConfig, MistralForCausalLM

from baton.engine.torch.cache import PrefixCache
from baton.engine.torch.forward import Forward, LlamaForward, ModelForward, close, forward_of
from baton.engine.torch.load import checked_forward, kv_shape
from baton.engine.torch.passes import PrefillPass
from baton.learn import lora


def prompt(model: Any, length: int) -> PrefillPass:
    forest = PrefixCache(0, 7)
    ids = np.random.default_rng(length).integers(0, model.config.vocab_size, length).astype(np.int32)
    return PrefillPass(forest.plant(ids)[0].chain(), kv_shape(model))


def logits(forward: Forward, run: PrefillPass) -> Tensor:
    with torch.inference_mode():
        return forward(run, *run.inputs())


def keys(forward: Forward, run: PrefillPass) -> Tensor:
    run.kv.zero_()
    with torch.inference_mode():
        forward.prefill(run, *run.inputs())
    return run.kv.clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 4)])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_the_same_bits(dtype: torch.dtype, heads: int, kv_heads: int, length: int) -> None:
    model = tiny_model(heads=heads, kv_heads=kv_heads).to(dtype)
    run = prompt(model, length)
    lean = checked_forward(model, kv_shape(model))
    assert isinstance(lean, LlamaForward)
    assert torch.equal(logits(lean, run), logits(ModelForward(model), run))
    assert torch.equal(keys(lean, run), keys(ModelForward(model), run))


def test_prefill_computes_nothing_that_is_nobodys_key() -> None:
    """The last layer's queries, attention and gated products took a third of `tiny`'s prefill."""
    model = tiny_model()
    lean, run = checked_forward(model, kv_shape(model)), prompt(model, 11)
    called: list[str] = []
    for number, layer in enumerate(model.model.layers):
        for name in ("q_proj", "k_proj", "v_proj"):
            told = f"{number} {name}"
            getattr(layer.self_attn, name).register_forward_hook(lambda *_, told=told: called.append(told))
        layer.mlp.down_proj.register_forward_hook(lambda *_, n=number: called.append(f"{n} mlp"))
    keys(lean, run)
    last = len(model.model.layers) - 1
    assert [each for each in called if each.startswith(f"{last} ")] == [f"{last} k_proj", f"{last} v_proj"]
    assert f"{last - 1} mlp" in called


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_in_one_operation_differ_by_rounding(dtype: torch.dtype) -> None:
    """As a GPU computes them."""
    model = tiny_model().to(dtype)
    run = prompt(model, 40)
    fused, own = logits(LlamaForward(model, fused=True), run), logits(ModelForward(model), run)
    assert close(own, fused)
    assert torch.allclose(own.float(), fused.float(), rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)


def test_weights_are_those_of_the_moment() -> None:
    model = tiny_model()
    lean = checked_forward(model, kv_shape(model))
    model.load_state_dict(tiny_model(seed=1).state_dict(), assign=True)
    run = prompt(model, 9)
    assert torch.equal(logits(lean, run), logits(ModelForward(model), run))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_adapter_is_the_models_own(dtype: torch.dtype) -> None:
    """Over a base in half precision adapters are float32."""
    base = lora.attach(tiny_model().to(dtype), ["a", "b"], rank=4)
    with torch.no_grad():
        for name in ("a", "b"):
            for part in lora.parameters_of(base, name):
                part.normal_(std=0.3)
    found = []
    for name in ("a", "b", None):
        model = lora.Adapted(base, name)
        lean = checked_forward(model, kv_shape(model))
        assert isinstance(lean, LlamaForward)
        run = prompt(model, 12)
        found.append(logits(lean, run))
        assert torch.equal(found[-1], logits(ModelForward(model), run))
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_an_adapter_of_another_kind_is_called_as_it_is() -> None:
    model = tiny_model()
    config = LoraConfig(r=4, target_modules=["q_proj", "up_proj"], use_dora=True, init_lora_weights=False)
    inject_adapter_in_model(config, model)
    model.eval()
    lean = checked_forward(model, kv_shape(model))
    assert isinstance(lean, LlamaForward)
    run = prompt(model, 12)
    assert torch.equal(logits(lean, run), logits(ModelForward(model), run))


def probed(model: Any) -> Forward:
    run = prompt(model, 8)
    return forward_of(model, run, *run.inputs())


def test_other_models_go_the_long_way() -> None:
    config = MistralConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=50
    )
    config.sliding_window = None
    assert isinstance(probed(MistralForCausalLM(config).eval()), ModelForward)
    changed = tiny_model()
    changed.model.layers[1].mlp.forward = lambda x: 2 * x
    assert isinstance(probed(changed), ModelForward)


def test_hooks_are_called() -> None:
    model = tiny_model()
    seen = []
    lean = checked_forward(model, kv_shape(model))
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda *_: seen.append(1))
    run = prompt(model, 5)
    seen.clear()
    assert torch.equal(logits(lean, run), logits(ModelForward(model), run))
    assert len(seen) == 2
    assert isinstance(probed(model), ModelForward)


def test_a_model_that_computes_otherwise_goes_the_long_way() -> None:
    """The probe decides, not the name of the class."""
    model = tiny_model()
    model.model.layers[0].mlp = _Doubled(model.model.layers[0].mlp)
    assert isinstance(probed(model), ModelForward)


class _Doubled(nn.Module):
    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = mlp.gate_proj, mlp.up_proj, mlp.down_proj
        self.act_fn = mlp.act_fn

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = 2 * self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return found
