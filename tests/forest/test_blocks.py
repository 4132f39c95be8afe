"""Blocks of neighbouring tokens that attend to their whole paths: the same attention as by parts, in few calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import tiny_model
from torch import Tensor

from baton.forest.attention import parts
from baton.forest.attention.parts import PartsPass
from baton.forest.layout import Layout, pack, plant
from baton.forest.logprobs import edge_logprobs, tree_attention
from baton.forest.rows import Row

SHAPES = [(1, 1, 1), (3, 1, 5), (4, 2, 3), (6, 6, 2)]
"""Heads, of keys, and their size."""


def some_rows(seed: int, num: int, most: int = 40) -> list[Row]:
    """Rows that branch off each other anywhere, several trees, some of one token more than others."""
    rng = np.random.default_rng(seed)
    known: list[list[int]] = [[1, 2, 3], [7]]
    for _ in range(num):
        base = known[int(rng.integers(len(known)))]
        cut = int(rng.integers(0, len(base) + 1))
        known.append(base[:cut] + rng.integers(0, 9, int(rng.integers(1, most))).tolist())
    return [make_row(ids, 1, rng=rng, sample=str(n)) for n, ids in enumerate(known[2:]) if len(ids) > 1]


def brute(layout: Layout, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Token by token, over the tokens that are found by walking up from it."""
    group = q.shape[1] // k.shape[1]
    out = []
    for token in range(layout.num_tokens):
        path, at = [], token
        while at >= 0:
            path.append(at)
            at = int(layout.parent[at])
        keys, values = k[path].repeat_interleave(group, 1), v[path].repeat_interleave(group, 1)
        weights = torch.softmax((q[token][None] * keys).sum(-1) * scale, 0)
        out.append((weights[..., None] * values).sum(0))
    return torch.stack(out)


def numbers(layout: Layout, shape: tuple[int, int, int], seed: int) -> list[Tensor]:
    heads, kv_heads, size = shape
    made = torch.Generator().manual_seed(seed)
    sizes = [(layout.num_tokens, n, size) for n in (heads, kv_heads, kv_heads)]
    return [torch.randn(*each, dtype=torch.float64, generator=made).requires_grad_() for each in sizes]


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), num=st.integers(1, 7), some=st.booleans())
def test_attention_and_its_gradients_are_those_of_every_token_by_itself(
    blocks: bool, shape: tuple[int, int, int], seed: int, num: int, some: bool
) -> None:
    layout, _ = plant(some_rows(seed, num))
    q, k, v = numbers(layout, shape, seed)
    rng = np.random.default_rng(seed)
    at = np.flatnonzero(rng.random(layout.num_tokens) < 0.3) if some else None
    if at is not None and not len(at):
        at = np.array([layout.num_tokens - 1])
    chosen = None if at is None else torch.from_numpy(at)
    expected = brute(layout, q, k, v, 0.7)
    expected = expected if chosen is None else expected[chosen]
    grad = torch.from_numpy(rng.normal(size=expected.shape))
    wanted = torch.autograd.grad(expected, (q, k, v), grad)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartsPass, "_as_blocks", lambda *_: blocks)
        found = PartsPass(layout).attend(q, k, v, 0.7, chosen)
        got = torch.autograd.grad(found, (q, k, v), grad)
    assert torch.allclose(found, expected, atol=1e-12)
    for one, other in zip(got, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-11)


def test_half_precision_adds_up_in_single() -> None:
    layout, _ = plant(some_rows(5, 30, most=6))
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in numbers(layout, (4, 2, 8), 1))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = brute(layout, *wide, 0.5)
    found = PartsPass(layout).attend(q, k, v, 0.5)
    grad = torch.ones_like(expected)
    wanted = torch.autograd.grad(expected, wide, grad)
    got = torch.autograd.grad(found, (q, k, v), grad.bfloat16())
    assert found.dtype == torch.bfloat16
    for one, other in zip((found.detach(), *got), (expected.detach(), *wanted), strict=True):
        assert float((one.double() - other).norm() / other.norm()) < 0.02


def calls_of(monkeypatch: pytest.MonkeyPatch, layout: Layout) -> int:
    made: list[int] = []
    real = parts._flash

    def counted(*args: Any, **rest: Any) -> Any:
        made.append(1)
        return real(*args, **rest)

    monkeypatch.setattr(parts, "_flash", counted)
    q, k, v = numbers(layout, (4, 4, 24), 0)
    PartsPass(layout).attend(q, k, v, 0.2)
    return len(made)


def test_a_forest_of_many_short_stretches_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was one for each node with something below it: 57 in a batch of `flagship`, four fifths of the time."""
    layout, _ = plant(some_rows(1, 60, most=12))
    assert np.count_nonzero(layout.end[layout.node_start] > layout.node_stop) > 20
    assert calls_of(monkeypatch, layout) == 1


def test_a_long_prompt_is_still_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 250, 700).tolist()
    said = [make_row([*prompt, n, *rng.integers(0, 250, 63).tolist()], 700, rng=rng) for n in range(5)]
    layout, _ = plant(said)
    assert calls_of(monkeypatch, layout) == 3  # the prompt, the five answers, and those to the prompt


def read_by_last_layer(model: Any, rows: list[Row]) -> tuple[Tensor, list[int]]:
    """Log-probabilities, and how many tokens went through each layer's last product."""
    batch = pack(rows)
    current = parts.make_pass(batch.layout, model.dtype, model.device)
    seen: list[int] = []
    hooks = [
        layer.mlp.down_proj.register_forward_hook(lambda *given: seen.append(given[-1].shape[-2]))
        for layer in model.get_decoder().layers
    ]
    with tree_attention(model, current):
        found, _ = edge_logprobs(model, batch, current.layout)
    for hook in hooks:
        hook.remove()
    return found, seen


def test_the_last_layer_is_computed_where_it_is_read() -> None:
    rng = np.random.default_rng(2)
    prompt = rng.integers(0, 250, 50).tolist()
    rows = [make_row([*prompt, n, n + 1], 50, rng=rng, sample=str(n)) for n in (3, 9, 11)]
    model = exact_model()
    found, seen = read_by_last_layer(model, rows)
    assert seen == [56] * (len(seen) - 1) + [4]  # the prompt's last token and the first of each answer
    whole, every = read_by_last_layer(hooked(model), rows)  # through transformers, which computes all
    assert every == [56] * len(every)
    assert torch.allclose(found, whole, atol=1e-12)


def hooked(model: Any) -> Any:
    model.get_decoder().layers[0].register_forward_pre_hook(lambda *_: None)
    return model


def test_a_model_that_checkpoints_goes_through_transformers() -> None:
    rng = np.random.default_rng(2)
    rows = [make_row([1, 2, 3, n, 5], 3, rng=rng, sample=str(n)) for n in (3, 9)]
    model = tiny_model().train()
    model.gradient_checkpointing_enable()
    _, seen = read_by_last_layer(model, rows)
    assert set(seen) == {7}
