"""The gradient of the forest is the gradient of the rows, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row, plain_logprobs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from baton.forest.attention.flex import FlexPass, bucket
from baton.forest.attention.parts import make_pass
from baton.forest.fused import llama
from baton.forest.layout import once, pack, plant
from baton.forest.logprobs import edge_logprobs, tree_attention
from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed, scaled

MODEL = exact_model()
PARAMETERS = list(MODEL.parameters())


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Two threads on products this small only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_rows(seed: int, *, samples: int = 0, temperature: float = 1.0) -> list[Row]:
    """A forest of several trees: shared prompts, growing conversations, forks, duplicates."""
    rng = np.random.default_rng(seed)
    known: list[list[int]] = [rng.integers(0, 258, 4).tolist()]
    rows = []
    for i in range(int(rng.integers(2, 8))):
        base = known[int(rng.integers(len(known)))]
        cut = int(rng.integers(0, len(base) + 1))
        ids = base[:cut] + rng.integers(0, 3, int(rng.integers(2, 7))).tolist()
        known.append(ids)
        rows.append(
            make_row(
                ids, int(rng.integers(1, len(ids))), rng=rng, call=str(i), agent=str(i % 2),
                sample=str(i % samples) if samples else str(i), temperature=temperature,
            )
        )  # fmt: skip
    with torch.no_grad():  # near the model, so that some ratios are clipped and some are not
        near = [plain_logprobs(MODEL, row).numpy() + 0.3 * rng.normal(size=len(row.places)) for row in rows]
    return [structs.replace(row, sampler=sampler) for row, sampler in zip(rows, near, strict=True)]


def plain(rows: list[Row], loss: Loss) -> tuple[float, list[Tensor]]:
    """The loss row by row, written out again with nothing of the package but the rows."""
    denominator = sum(len(row.places) for row in rows)
    whole = torch.zeros((), dtype=torch.float64)
    for row in rows:
        new, old = plain_logprobs(MODEL, row), torch.from_numpy(row.sampler)
        a, w = torch.from_numpy(row.advantages), torch.from_numpy(row.weights)
        rho = torch.exp(new - old)
        low, high = loss.limits
        if loss.kind == "reinforce":
            each = a * new
        elif loss.kind == "ppo":
            each = torch.min(rho * a, torch.clip(rho, 1 - low, 1 + high) * a)
        elif loss.kind == "gspo":
            s = torch.exp((new - old).mean())
            each = torch.min(s * a, torch.clip(s, 1 - low, 1 + high) * a)
        elif loss.kind == "cispo":
            each = torch.clip(rho, 1 - low, 1 + high).detach() * a * new
        else:
            each = torch.where((rho.log() >= low) & (rho.log() <= high), rho * a, 0.0)
        whole = whole - (w * each).sum() / denominator
    return float(whole.detach()), list(torch.autograd.grad(whole, PARAMETERS))


def packed(rows: list[Row], loss: Loss, **settings: Any) -> tuple[float, list[Tensor]]:
    MODEL.zero_grad()
    report = Gradients(MODEL, loss, Packed(check=False, **settings)).backward(rows)
    return report.loss, [p.grad for p in PARAMETERS]  # type: ignore[misc]


def assert_same(a: tuple[float, list[Tensor]], b: tuple[float, list[Tensor]]) -> None:
    assert a[0] == pytest.approx(b[0], abs=1e-10)
    for x, y in zip(a[1], b[1], strict=True):
        assert float((x - y).abs().max()) <= 1e-10 * max(1.0, float(y.abs().max()))


LOSSES = [
    Loss(kind="reinforce"),
    Loss(kind="ppo", low=0.2, high=0.28),
    Loss(kind="gspo", low=0.1, high=0.2, scale=()),
    Loss(kind="cispo", low=1.0, high=0.5),
    Loss(kind="masked", low=-0.5, high=0.5),
]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(LOSSES))
def test_row_exact_is_the_sum_over_rows(seed: int, loss: Loss) -> None:
    rows = random_rows(seed, samples=2)
    expected = plain(rows, loss)
    for packing in ("forest", "merged", "rows"):
        assert_same(packed(rows, loss, packing=packing, duplicates="row_exact"), expected)


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_once_is_the_sum_over_draws(seed: int) -> None:
    rows = random_rows(seed, samples=2, temperature=0.7)
    loss = Loss(kind="ppo", low=0.1, high=0.3)
    assert_same(packed(rows, loss, packing="forest"), plain(once(rows), loss))


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(6, 25))
def test_micro_batches_do_not_change_the_gradient(seed: int, limit: int) -> None:
    rows = random_rows(seed)
    loss = Loss(kind="ppo", scale=("agent", "turn"))
    assert_same(
        packed(rows, loss, packing="forest", max_tokens=limit), plain(scaled(rows, loss.levels), loss)
    )


@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_chunks_of_logits_do_not_change_the_gradient(entropy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chunk is kept for backward, several are computed again there."""
    rows, loss = random_rows(3), Loss(kind="ppo", entropy=entropy)
    whole = packed(rows, loss, packing="forest")
    monkeypatch.setattr("baton.forest.logprobs.CHUNK", {"cpu": 3 * 258})
    assert sum(len(row.places) for row in rows) > 3
    again = Mock(side_effect=checkpoint)
    monkeypatch.setattr("baton.forest.logprobs.checkpoint", again)
    assert_same(packed(rows, loss, packing="forest"), whole)
    assert again.call_count > 1


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from(LOSSES), st.sampled_from([0.7, 1.0]), st.sampled_from([0, 3]))
@example(5651, LOSSES[0], 0.7, 0)  # a prompt has the token that the model pads with
def test_fused_layers_give_the_same_gradient(seed: int, loss: Loss, temperature: float, least: int) -> None:
    """What a GPU takes: layers and vocabulary with a backward of their own, short stretches not shared."""
    rows = random_rows(seed, samples=2, temperature=temperature)
    expected = packed(rows, loss, packing="forest", duplicates="row_exact")
    with (
        patch("baton.forest.logprobs.FUSED", {"cpu"}),
        patch("baton.learn.update.LEAST", {"cpu": least}),
        patch.object(llama, "hidden_states", Mock(side_effect=llama.hidden_states)) as fused,
    ):
        for packing in ("forest", "merged"):
            assert_same(packed(rows, loss, packing=packing, duplicates="row_exact"), expected)
    assert fused.call_count == 2


def test_clipping_is_active_in_these_tests() -> None:
    rows = [row for seed in range(5) for row in random_rows(seed)]
    report = Gradients(MODEL, LOSSES[1], Packed(check=False)).backward(rows)
    assert 0.1 < report.means["clipped"] < 0.95


def test_ppo_on_edges_is_two_weights_per_edge() -> None:
    """L = -sum_i [min(rho, 1+eh) W+ + max(rho, 1-el) W-] where the rows of an edge have one sampler."""
    rng = np.random.default_rng(1)
    ids = [5, 6, 7, 8]
    rows = [make_row(ids, 1, rng=rng, sample=str(i)) for i in range(3)]
    rows = [structs.replace(row, sampler=rows[0].sampler) for row in rows]
    new = plain_logprobs(MODEL, rows[0])
    rho = torch.exp(new - torch.from_numpy(rows[0].sampler))
    plus = torch.from_numpy(sum(row.weights * np.maximum(row.advantages, 0) for row in rows))
    minus = torch.from_numpy(sum(row.weights * np.minimum(row.advantages, 0) for row in rows))
    whole = -(rho.clamp(max=1.2) * plus + rho.clamp(min=0.8) * minus).sum() / 9
    value, grads = packed(rows, Loss(kind="ppo"), packing="forest", duplicates="row_exact")
    assert_same((value, grads), (float(whole.detach()), list(torch.autograd.grad(whole, PARAMETERS))))


def test_gradient_checkpointing_keeps_the_mask() -> None:
    rows = random_rows(3)
    loss = Loss(kind="ppo")
    expected = plain(rows, loss)
    MODEL.train()
    MODEL.gradient_checkpointing_enable()
    try:
        assert_same(packed(rows, loss, packing="forest"), expected)
    finally:
        MODEL.gradient_checkpointing_disable()
        MODEL.eval()


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_any_number_of_key_heads(kv_heads: int) -> None:
    model = exact_model(kv_heads=kv_heads)
    rows = random_rows(4)
    batch = pack(rows)
    current = make_pass(batch.layout, model.dtype, model.device)
    with torch.no_grad(), tree_attention(model, current):
        got, _ = edge_logprobs(model, batch, current.layout)
        got = got[torch.from_numpy(batch.of)]
    with torch.no_grad():
        expected = torch.cat([plain_logprobs(model, row) for row in rows])
    assert float((got - expected).abs().max()) < 1e-12


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_the_block_mask_is_the_forest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stem = rng.integers(0, 258, 150).tolist()
    rows = [
        make_row(
            stem[: int(rng.integers(1, 150))] + rng.integers(0, 3, int(rng.integers(1, 200))).tolist(),
            1,
            rng=rng,
        )
        for _ in range(5)
    ]
    layout, _ = plant(rows)
    layout = layout.padded(bucket(layout.num_tokens))
    current = FlexPass(layout, torch.device("cpu"))
    index, end = np.arange(layout.num_tokens), layout.end
    sees = (index[None] <= index[:, None]) & (index[:, None] < end[None])
    blocks = sees.reshape(len(sees) // 128, 128, -1, 128).swapaxes(1, 2)
    dense = torch.from_numpy(blocks.any((2, 3)))
    mask = current._mask
    assert torch.equal(mask.to_dense()[0, 0].bool(), dense)
    assert int(mask.full_kv_num_blocks.sum()) == int(blocks.all((2, 3)).sum())
    q = torch.randn(layout.num_tokens, 2, 16)
    reference = torch.nn.functional.scaled_dot_product_attention(
        *(q.transpose(0, 1)[None],) * 3, attn_mask=torch.from_numpy(sees), scale=0.2
    )[0].transpose(0, 1)
    with torch.no_grad():
        assert torch.allclose(current.attend(q, q, q, 0.2), reference, atol=1e-5)
