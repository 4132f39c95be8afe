"""Adapters over one base: the forest trains one as rows do, and engines by turns answer as merged models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row, plain_logprobs
from peft.tuners.lora import Linear
from tiny_model import tiny_model, tiny_tokenizer
from torch import Tensor

from baton.engine.torch import TorchEngine
from baton.errors import UsageError
from baton.forest.rows import Row
from baton.learn.lora import (
    Adapted,
    adapter_state_dict,
    attach,
    load_adapter_state_dict,
    names_of,
    parameters_of,
    use,
)
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed
from baton.team.protocol import Answer, Entry, Request
from baton.trace.records import Sampling

IDS = torch.tensor([[5, 9, 100, 7, 42]])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spread_out(model: Any, name: str, seed: int, scale: float = 0.3) -> None:
    """Random weights for an adapter, as training would leave them."""
    made = torch.Generator().manual_seed(seed)
    state = {
        k: scale * torch.randn(v.shape, generator=made, dtype=v.dtype)
        for k, v in adapter_state_dict(model, name).items()
    }
    load_adapter_state_dict(model, name, state)


def with_adapters(model: Any) -> Any:
    attach(model, ["orchestrator", "worker"], rank=4, alpha=8)
    spread_out(model, "orchestrator", 1)
    spread_out(model, "worker", 2)
    return model


def merged(plain: Any, adapted: Any, name: str) -> Any:
    """A separate model of its own: W + alpha / rank * B A."""
    state = adapter_state_dict(adapted, name)
    with torch.no_grad():
        for key, a in state.items():
            if key.endswith("lora_A"):
                b = state[key.replace("lora_A", "lora_B")]
                plain.get_submodule(key.removesuffix(".lora_A")).weight += 2 * (b @ a)
    return plain


def rows() -> list[Row]:
    rng = np.random.default_rng(3)
    shared = rng.integers(0, 258, 12).tolist()
    return [
        make_row(shared + rng.integers(0, 258, 6).tolist(), 12 + i % 2, rng=rng, call=str(i), sample=str(i))
        for i in range(4)
    ]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_layer_is_pefts_in_fewer_operations(dtype: torch.dtype, bias: bool) -> None:
    model = with_adapters(tiny_model().to(dtype))
    layer = model.model.layers[0].self_attn.k_proj
    random, found = torch.Generator().manual_seed(0), {}
    if bias:
        layer.base_layer.bias = torch.nn.Parameter(
            torch.randn(layer.out_features, generator=random).to(dtype), requires_grad=False
        )
    given = torch.randn(3, 5, layer.in_features, generator=random).to(dtype)
    weights = [layer.lora_A["worker"].weight, layer.lora_B["worker"].weight]
    with use(model, "worker"):
        for kind, forward in (("ours", layer), ("peft", partial(Linear.forward, layer))):
            x = given.clone().requires_grad_()
            out = forward(x)
            out.float().square().sum().backward()
            found[kind] = [out.detach(), x.grad, *(each.grad for each in weights)]
            for each in weights:
                each.grad = None
    slack = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
    for ours, pefts in zip(found["ours"], found["peft"], strict=True):
        assert ours.dtype == pefts.dtype
        assert float((ours - pefts).abs().max()) <= slack * float(pefts.abs().max())


def test_a_new_adapter_changes_nothing_and_none_is_the_base() -> None:
    model = tiny_model()
    before = model(IDS).logits
    attach(model, ["worker"], rank=4, alpha=8)
    assert names_of(model) == ("worker",)
    with use(model, "worker"):
        assert torch.equal(model(IDS).logits, before)
    spread_out(model, "worker", 1)
    assert torch.equal(model(IDS).logits, before)  # not active outside of `use`
    with use(model, "worker"):
        assert not torch.allclose(model(IDS).logits, before)
        with use(model, None):
            assert torch.equal(model(IDS).logits, before)
        assert not torch.allclose(model(IDS).logits, before)


@pytest.mark.parametrize("packing", ["forest", "merged", "rows"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_forest_trains_one_adapter_as_plain_rows_do(packing: Any, checkpointing: bool) -> None:
    model = with_adapters(exact_model())
    if checkpointing:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    own = parameters_of(model, "worker")
    with use(model, "worker"):
        expected = plain_gradients(model, rows(), own)
        Gradients(model, Loss(kind="reinforce"), Packed(packing=packing, attention="parts")).backward(rows())
    for parameter, gradient in zip(own, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)
    assert any(gradient.abs().max() > 1e-4 for gradient in expected)
    others = {id(p) for p in model.parameters()} - {id(p) for p in own}
    assert all(p.grad is None for p in model.parameters() if id(p) in others)


def plain_gradients(model: Any, given: list[Row], parameters: list[Any]) -> list[Tensor]:
    whole = torch.zeros((), dtype=torch.float64)
    for row in given:
        weighted = torch.from_numpy(row.weights * row.advantages) * plain_logprobs(model, row)
        whole = whole - weighted.sum() / sum(len(each.places) for each in given)
    return list(torch.autograd.grad(whole, parameters))


def test_the_base_is_a_reference_for_its_own_adapter() -> None:
    """KL against the base costs no second model: the same number as with one."""
    model = with_adapters(exact_model())
    loss = Loss(kind="reinforce", kl=0.5)
    found = []
    for reference in (Adapted(model, None), exact_model()):
        with use(model, "worker"):
            report = Gradients(model, loss, reference=reference).backward(rows())
        found.append(report.means["kl"])
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] > 1e-3


def test_engines_over_one_base_answer_by_turns_as_merged_models_do() -> None:
    model = with_adapters(tiny_model())
    tokenizer = tiny_tokenizer()
    names = ("orchestrator", "worker")
    engines = {name: TorchEngine(Adapted(model, name), tokenizer, name=name) for name in names}
    apart = {name: TorchEngine(merged(tiny_model(), model, name), tokenizer) for name in names}
    plain = TorchEngine(tiny_model(), tokenizer)

    async def ask(engine: TorchEngine, key: int) -> list[int]:
        [answer] = await engine.answer([request("add 2 and 3", key)])
        assert isinstance(answer, Answer)
        assert answer.completion_ids is not None
        return list(answer.completion_ids)

    async def both() -> None:
        for key in range(3):  # the second and third read prefixes kept from before
            ours = [await ask(engines[name], key) for name in names]
            theirs = [await ask(apart[name], key) for name in names]
            assert ours == theirs
            assert ours[0] != ours[1] != await ask(plain, key)
        # At once, from two workers' threads: the passes take turns.
        ours = await asyncio.gather(*(ask(engines[name], key) for key in range(4) for name in names))
        theirs = await asyncio.gather(*(ask(apart[name], key) for key in range(4) for name in names))
        assert ours == theirs

    asyncio.run(both())
    assert engines["worker"].reused_tokens > 0


def test_publishing_changes_one_engine_only() -> None:
    model = with_adapters(tiny_model())
    tokenizer = tiny_tokenizer()
    engines = {n: TorchEngine(Adapted(model, n), tokenizer, name=n) for n in ("orchestrator", "worker")}

    def ask(name: str) -> tuple[list[int], str]:
        [answer] = asyncio.run(engines[name].answer([request("go", 0)]))
        assert isinstance(answer, Answer)
        return list(answer.completion_ids or ()), answer.policy_version

    before = {name: ask(name) for name in engines}
    engines["worker"].publish("1", adapter_state_dict(model, "orchestrator"))
    assert ask("orchestrator") == before["orchestrator"]
    assert ask("worker") == (before["orchestrator"][0], "1")


def test_use_keeps_other_threads_out() -> None:
    model = with_adapters(tiny_model())
    with use(model, "worker"):
        expected = model(IDS).logits
    found: list[Tensor] = []

    def compute() -> None:
        with use(model, "worker"):
            found.append(model(IDS).logits)

    with use(model, "orchestrator"):
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join(0.05)
        assert not found
        own = model(IDS).logits
    thread.join()
    assert torch.equal(found[0], expected)
    assert not torch.allclose(own, expected)


def test_state_goes_to_another_model() -> None:
    model = with_adapters(tiny_model())
    other = attach(tiny_model(), ["judge"], rank=4, alpha=8)
    load_adapter_state_dict(other, "judge", adapter_state_dict(model, "worker"))
    with use(model, "worker"), use(other, "judge"):
        assert torch.equal(model(IDS).logits, other(IDS).logits)


def test_half_precision_keeps_adapters_in_float32() -> None:
    model = attach(tiny_model().bfloat16(), ["worker"], rank=2, alpha=4)
    assert {p.dtype for p in parameters_of(model, "worker")} == {torch.float32}
    with use(model, "worker"):
        assert model(IDS).logits.dtype == torch.bfloat16


def test_adapters_depend_on_the_seed_and_leave_the_global_one_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    made = [tiny_model() for _ in range(3)]
    torch.manual_seed(0)
    states = [
        adapter_state_dict(attach(m, ["w"], rank=2, seed=seed), "w")
        for m, seed in zip(made, (0, 0, 1), strict=True)
    ]
    assert torch.equal(torch.rand(1), expected)
    key = next(key for key in states[0] if key.endswith("lora_A"))
    assert torch.equal(states[0][key], states[1][key])
    assert not torch.equal(states[0][key], states[2][key])


def test_mistakes() -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match=r"no adapters\. Call attach"), use(model, "worker"):
        pass
    with pytest.raises(UsageError, match=r"no linear layer 'q_pro'\. Did you mean 'q_proj'"):
        attach(model, ["a"], targets=["q_pro"])
    with pytest.raises(UsageError, match="different names"):
        attach(model, ["a", "a"])
    attach(model, ["worker"], rank=2)
    with pytest.raises(UsageError, match="Did you mean 'worker'"):
        parameters_of(model, "worke")
    with pytest.raises(UsageError, match="has adapters already: worker"):
        attach(model, ["more"])
    state = adapter_state_dict(model, "worker")
    with pytest.raises(UsageError, match="another adapter"):
        load_adapter_state_dict(model, "worker", dict(list(state.items())[1:]))
    other = attach(tiny_model(), ["worker"], rank=3)
    with pytest.raises(UsageError, match="Attach with the rank"):
        load_adapter_state_dict(other, "worker", state)
    with pytest.raises(UsageError, match="frozen"):
        Adapted(model, None).load_state_dict(state)


def request(text: str, key: int) -> Request:
    return Request(
        call="c",
        agent="a",
        role="worker",
        entries=[Entry("system", "You are an agent."), Entry("user", text)],
        prompt_ids=None,
        sampling=Sampling(max_tokens=12, temperature=1.0, key=str(key)),
    )
