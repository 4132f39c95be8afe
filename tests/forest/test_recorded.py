"""Forests in tables of fixed sizes: the same hidden states and gradients as each by itself, in float64."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row
from plain_flash import deep, flash, flash_backward, flat
from torch import Tensor

from baton.forest.attention import cuda, fixed
from baton.forest.attention.cuda import CudaPass
from baton.forest.fused import llama, recorded
from baton.forest.fused.memory import Sizes
from baton.forest.layout import Layout, plant
from baton.forest.rows import Row

CPU = torch.device("cpu")


def alone(rng: np.random.Generator) -> list[Row]:
    return [make_row(rng.integers(0, 9, int(n)).tolist(), 1, rng=rng) for n in (3, 17, 9)]


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_flash", flash)
    monkeypatch.setattr(cuda, "_flash_backward", flash_backward)
    monkeypatch.setattr(cuda, "_PIECE", 4)
    monkeypatch.setattr(recorded, "_TOKENS", 128)


def learned(model: Any, hidden: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
    model.zero_grad()
    (hidden * weights).sum().backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


def by_itself(model: Any, layout: Layout) -> Tensor:
    ids, positions = torch.from_numpy(np.stack((layout.ids, layout.depth)).astype(np.int64))
    return llama.hidden_states(model, CudaPass(layout, CPU), ids, positions)


@pytest.mark.parametrize("make", [deep, flat, alone])
def test_forests_of_one_size(make: Callable[[np.random.Generator], list[Row]]) -> None:
    model = exact_model()
    taken = 0
    for seed in range(5):
        layout, _ = plant(make(np.random.default_rng(seed)), least=seed % 2)
        expected = by_itself(model, layout)
        gradients = learned(model, expected)
        found = recorded.hidden_states(model, layout)
        if found is None:
            continue  # the first of its size
        taken += 1
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
        for one, other in zip(learned(model, found), gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
    assert taken >= 2


def test_gradients_of_several_passes_add_up() -> None:
    model = exact_model()
    layout, _ = plant(flat(np.random.default_rng(1)))
    once = learned(model, by_itself(model, layout))
    recorded.hidden_states(model, layout)
    model.zero_grad()
    for _ in range(3):
        found = recorded.hidden_states(model, layout)
        assert found is not None
        (found * torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)).sum().backward()
    for each, one in zip((w.grad for w in model.parameters() if w.grad is not None), once, strict=True):
        assert each is not None
        torch.testing.assert_close(each, 3 * one, atol=1e-9, rtol=1e-9)


def test_a_pass_within_another_and_weights_that_moved_run_as_they_are() -> None:
    model = exact_model()
    layout, _ = plant(flat(np.random.default_rng(1)))
    by_itself(model, layout)  # weights move beside each other
    recorded.hidden_states(model, layout)
    first = recorded.hidden_states(model, layout)
    assert first is not None
    assert recorded.hidden_states(model, layout) is None
    first.sum().backward()
    assert recorded.hidden_states(model, layout) is not None
    model.model.norm.weight.data = model.model.norm.weight.data.clone()
    assert recorded.hidden_states(model, layout) is None


def test_a_forward_that_nobody_goes_back_through_is_in_nobodys_way() -> None:
    model = exact_model()
    layout, _ = plant(flat(np.random.default_rng(1)))
    by_itself(model, layout)
    recorded.hidden_states(model, layout)
    first = recorded.hidden_states(model, layout)
    assert first is not None
    del first
    assert recorded.hidden_states(model, layout) is not None


def test_a_model_that_is_gone_is_forgotten() -> None:
    model = exact_model()
    layout, _ = plant(flat(np.random.default_rng(1)))
    by_itself(model, layout)
    for _ in range(2):
        recorded.hidden_states(model, layout)
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None


def test_what_is_nobodys_is_seen_by_nobody() -> None:
    layout, _ = plant(deep(np.random.default_rng(3)))
    whole = fixed.filled(layout, layout.num_tokens + 37)
    count = layout.num_tokens
    assert whole.parent[count] == -1
    assert list(whole.parent[count + 1 :]) == list(range(count, count + 36))
    assert set(whole.end[count:]) == {count + 37}
    assert list(whole.end[:count]) == list(layout.end)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 5000, 5121, 70_000])
def test_sizes_waste_an_eighth_at_most(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "_TOKENS", 256)
    size = recorded._size(count)
    assert count <= size <= max(256, count + 255, count * 9 / 8)


def test_only_small_passes_of_a_gpu() -> None:
    small = Sizes(layers=30, width=576, inner=1536, heads=9, kv_heads=3, head_size=64, vocab=9, bytes=2)
    assert not recorded.worth(small, 100, CPU)
