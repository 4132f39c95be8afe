"""A large pass's products are torch's own up to rounding, and so are their gradients."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from exact_model import make_row
from tiny_model import tiny_model
from torch import Tensor, nn

from baton.forest import products
from baton.forest.products import large_products
from baton.learn.loss import Loss
from baton.learn.update import Gradients

CPU = torch.device("cpu")
needs_onednn = pytest.mark.skipif(products._product is None, reason="torch was built without oneDNN")


def computed(layer: nn.Linear, x: Tensor, *, large: bool) -> list[Tensor]:
    """The product in a large pass or in any, and the gradients of all that went in."""
    given = x.clone().requires_grad_()
    layer.zero_grad()
    with large_products(CPU) if large else nullcontext():
        out = layer(given)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    assert given.grad is not None
    return [out.detach(), given.grad, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("wide", "narrow"), [(48, 12), (12, 48), (1, 7)])
@pytest.mark.parametrize("shape", [(), (1,), (70,), (1, 70), (5, 7)])
def test_products_and_gradients_are_torchs(
    bias: bool, wide: int, narrow: int, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(wide, narrow, bias=bias), torch.randn(*shape, wide)
    expected, found = computed(layer, x, large=False), computed(layer, x, large=True)
    assert len(found) == 3 + bias
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each product was that oneDNN was asked for."""
    made: list[int] = []
    known = products._product

    def counted(x: Tensor, *rest: object) -> Tensor:
        made.append(len(x))
        found: Tensor = known(x, *rest)
        return found

    monkeypatch.setattr(products, "_product", counted)
    return made


@needs_onednn
def test_only_a_processor_takes_them_in_float32(asked: list[int]) -> None:
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    computed(layer, x, large=False)
    assert not asked
    computed(layer, x, large=True)
    assert asked == [4, 4, 2]  # forward, of what went in, and of the weights (the narrower side first)
    with large_products(torch.device("cuda")):
        layer(x)
    with large_products(CPU):
        layer.double()(x.double())  # oneDNN has no float64
    assert len(asked) == 3


def test_without_onednn_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_product", None)
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    for ours, theirs in zip(computed(layer, x, large=True), computed(layer, x, large=False), strict=True):
        assert torch.equal(ours, theirs)


@needs_onednn
def test_a_weight_that_does_not_learn_and_no_gradients() -> None:
    layer, x = nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    layer.weight.requires_grad_(False)
    with large_products(CPU):
        layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    assert x.grad is not None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(4, 3))
    with large_products(CPU), torch.no_grad():
        assert not layer(x).requires_grad


@needs_onednn
@pytest.mark.parametrize("least", [1, 10**6])
def test_an_update_has_the_gradients_of_plain_products(
    least: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LEAST", least)
    rng = np.random.default_rng(0)
    shared = rng.integers(0, 258, 20).tolist()
    rows = [
        make_row(shared + rng.integers(0, 258, 30).tolist(), 20, rng=rng, sample=str(n), call=str(n))
        for n in range(6)
    ]
    found = []
    for large in (True, False):
        model = tiny_model()
        report = Gradients(model, Loss(kind="reinforce", correction="off"), large_products=large).backward(
            rows
        )
        found.append((report.loss, [each.grad.clone() for each in model.parameters()]))
        assert bool(asked) == (large and least == 1)
        asked.clear()
    (loss, ours), (plain_loss, plain) = found
    assert loss == pytest.approx(plain_loss, rel=1e-4)
    for mine, theirs in zip(ours, plain, strict=True):
        slack = 1e-4 * float(theirs.abs().max()) if least == 1 else 0.0
        torch.testing.assert_close(mine, theirs, rtol=0, atol=slack)
