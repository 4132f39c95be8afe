"""A Llama's layers and its vocabulary with a backward of their own, against autograd and transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
import torch
from exact_model import exact_model
from tiny_model import tiny_model
from torch import Tensor

from baton.forest import logprobs
from baton.forest.attention.parts import make_pass
from baton.forest.fused import llama, memory, plain
from baton.forest.fused.vocabulary import chosen_logprobs
from baton.forest.layout import Layout
from baton.learn import lora

IDS = torch.tensor([5, 9, 2, 77, 31, 8, 250, 3, 3, 19, 60])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def chain(count: int) -> Layout:
    index = torch.arange(count, dtype=torch.int32).numpy()
    return Layout(ids=index, parent=index - 1, depth=index, end=index * 0 + count)


def gradients(model: Any, hidden: Callable[[], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states, and the gradients of a sum of them that treats all of them differently."""
    model.zero_grad()
    found = hidden()
    weights = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    (found * weights).sum().backward()
    return found.detach(), {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }


def same(a: Any, b: Any, slack: float) -> None:
    assert torch.allclose(a[0], b[0], atol=slack)
    assert a[1].keys() == b[1].keys()
    assert a[1]
    for name, found in a[1].items():
        assert torch.allclose(found, b[1][name], atol=slack * max(1.0, float(found.abs().max()))), name


def own(model: Any, *, kept: int | None = None) -> Tensor:
    current = make_pass(chain(len(IDS)), model.dtype, model.device)
    return llama.hidden_states(model, current, IDS, torch.arange(len(IDS)), kept=kept)


def theirs(model: Any) -> Tensor:
    found: Tensor = model.model(input_ids=IDS[None], use_cache=False).last_hidden_state[0]
    return found


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kept", [None, 0, 1])
def test_layers_are_the_models_own(kv_heads: int, kept: int | None) -> None:
    model = exact_model(kv_heads=kv_heads)
    same(gradients(model, lambda: own(model, kept=kept)), gradients(model, lambda: theirs(model)), 1e-10)


def test_adapters_are_pefts_own() -> None:
    """Adapters get their gradients, the base gets none, and without one the base answers alone."""
    model = exact_model()
    lora.attach(model, ("a", "b"), rank=3, alpha=5)
    with torch.no_grad():
        for name in ("a", "b"):
            for part in lora.parameters_of(model, name):
                part.copy_(torch.randn_like(part) * 0.2)
    for name in ("a", None):
        with lora.use(model, name):
            with torch.no_grad():
                assert torch.allclose(own(model), theirs(model), atol=1e-10)
            if name is not None:
                found = gradients(model, lambda: own(model))
                same(found, gradients(model, lambda: theirs(model)), 1e-10)
                assert all(".a." in key for key in found[1])


def test_an_adapter_on_some_projections_goes_through_transformers() -> None:
    model = exact_model()
    lora.attach(model, ("a",), targets=("q_proj", "down_proj"))
    with pytest.raises(llama.NotPlain):
        own(model)


@pytest.mark.parametrize("change", ["hook", "bias", "subclass", "dropout"])
def test_what_is_not_plainly_a_llama_goes_through_transformers(change: str) -> None:
    model = exact_model()
    layer = model.model.layers[-1]
    if change == "hook":
        layer.mlp.down_proj.register_forward_hook(lambda _m, _i, out: 2 * out)
    elif change == "bias":
        layer.self_attn.o_proj.bias = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    elif change == "subclass":
        layer.mlp.up_proj.__class__ = type("Other", (torch.nn.Linear,), {})
    else:
        model.config.attention_dropout = 0.1
        assert not llama.is_llama(model)
        return
    with pytest.raises(llama.NotPlain):
        own(model)
    layout = chain(len(IDS))
    with (
        patch.object(logprobs, "FUSED", {"cpu"}),
        logprobs.tree_attention(model, make_pass(layout, model.dtype, model.device)),
    ):
        assert logprobs.hidden_states(model, layout).shape == (len(IDS), model.config.hidden_size)


def test_joined_weights_are_the_models_own_memory() -> None:
    model = tiny_model()
    before = {name: each.clone() for name, each in model.named_parameters()}
    layer = llama.Layer.of(model.model.layers[0], (4, 2))
    again = llama.Layer.of(model.model.layers[0], (4, 2))
    attention = model.model.layers[0].self_attn
    assert layer.qkv.weight.data_ptr() == attention.q_proj.weight.data_ptr() == again.qkv.weight.data_ptr()
    parts = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
    assert all(a.data_ptr() + a.nbytes == b.data_ptr() for a, b in pairwise(parts))
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())
    with torch.no_grad():
        attention.k_proj.weight.fill_(7.0)
    assert torch.equal(layer.qkv.weight[len(parts[0]) :][: len(parts[1])], attention.k_proj.weight)


@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_log_probabilities_are_log_softmax(
    tempered: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.forest.fused.vocabulary.CHUNK", {"cpu": size * 37})
    hidden = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(37, 5, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 37, (11,))
    heat = torch.rand(11, dtype=torch.float64) + 0.5 if tempered else None
    logits = hidden @ weight.t() / (1.0 if heat is None else heat[:, None])
    expected = torch.log_softmax(logits, -1)[torch.arange(11), target]
    found = chosen_logprobs(weight, hidden, target, heat)
    assert torch.allclose(found, expected, atol=1e-12)
    grad = torch.randn(11, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(found, (hidden, weight), grad),
        torch.autograd.grad(expected, (hidden, weight), grad),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-12)


def test_half_precision_keeps_no_wide_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for backward of the logits has the model's precision, and log-probabilities are float32."""
    made: list[Tensor] = []
    real = plain.chosen

    def chosen(logits: Tensor, *rest: Any) -> Any:
        made.append(logits)
        return real(logits, *rest)

    monkeypatch.setattr(plain, "chosen", chosen)
    hidden = torch.randn(6, 8, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(50, 8, dtype=torch.bfloat16)
    found = chosen_logprobs(weight, hidden, torch.arange(6), None)
    assert found.dtype == torch.float32
    assert [each.dtype for each in made] == [torch.bfloat16]
    wide = torch.log_softmax((hidden.detach() @ weight.t()).float(), -1)[torch.arange(6), torch.arange(6)]
    assert torch.allclose(found.detach(), wide, atol=1e-5)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16


def kept_bytes(run: Callable[[], Any]) -> int:
    """What backward holds of a forward pass, every piece of memory once; weights apart."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run()
    assert out is not None
    return sum(seen.values())


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_model_counts_what_backward_holds(kv_heads: int, dtype: torch.dtype) -> None:
    """Bytes that autograd was given to keep, against the formula; and of layers that are computed again."""
    model = tiny_model(kv_heads=kv_heads).to(dtype)
    sizes = memory.Sizes.of(model)
    tokens = len(IDS)
    shared = kept_bytes(lambda: own(model, kept=0))
    assert sizes.layers == len(model.model.layers) > 1
    held = [kept_bytes(lambda kept=kept: own(model, kept=kept)) for kept in range(sizes.layers + 1)]  # type: ignore[misc]
    assert held[0] == shared
    for few, more in pairwise(held):
        # A layer that is kept holds its own input once more than one that is computed again is given it.
        assert more - few == pytest.approx(
            tokens * (sizes.kept - sizes.given), abs=2.1 * tokens * sizes.given
        )
    whole = held[-1] - held[0]
    assert whole == pytest.approx(sizes.layers * tokens * (sizes.kept - sizes.given), rel=0.15)


def test_the_gate_keeps_what_fits() -> None:
    """1.7B, 34,816 tokens, 24,576 edges: 65,672 bytes a token and layer, as written out here."""
    sizes = memory.Sizes(
        layers=24, width=2048, inner=8192, heads=32, kv_heads=32, head_size=64, vocab=49152, bytes=2
    )
    a_token = 2 * (4 * 2048 + 32 * 64 + 3 * 32 * 64 + 2 * 8192) + 4 * (32 + 2)
    assert sizes.kept == a_token == 65_672
    tokens, edges = 34_816, 24_576
    gib = 2**30
    assert memory.layers_kept(sizes, tokens, edges, 130 * gib) == 24
    assert memory.layers_kept(sizes, tokens, edges, 8 * gib) == 0
    some = [memory.layers_kept(sizes, tokens, edges, free * gib) for free in range(10, 131, 10)]
    assert some == sorted(some)
    assert 0 < memory.layers_kept(sizes, tokens, edges, 40 * gib) < 24
    for free in (20, 40, 60):
        kept = memory.layers_kept(sizes, tokens, edges, free * gib)
        assert tokens * (kept * a_token + (24 - kept) * 2 * 2 * 2048) < free * gib
