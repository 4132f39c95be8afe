"""How far an update moved a policy: none at all, what a plain forward says, and only where the sampler is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row, plain_logprobs
from msgspec import structs

from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed


def sampled(model: object) -> list[Row]:
    """Rows that this model drew, as far as their log-probabilities tell."""
    rng = np.random.default_rng(1)
    rows = [
        make_row([5, 6, 7, *rng.integers(0, 50, 4 + n % 3).tolist()], 3, rng=rng, sample=str(n))
        for n in range(6)
    ]
    with torch.no_grad():
        return [structs.replace(row, sampler=plain_logprobs(model, row).numpy()) for row in rows]


def test_it_is_the_plain_sum_over_tokens() -> None:
    model = exact_model()
    rows = sampled(model)
    gradients = Gradients(model, Loss(), Packed(check=False))
    assert gradients.moved(rows) == pytest.approx(0.0, abs=1e-12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
        gaps = [plain_logprobs(model, row).numpy() - row.sampler for row in rows]
    expected = np.mean([float(np.sum(np.exp(gap) - gap - 1)) for gap in gaps])
    assert expected > 1e-4
    assert gradients.moved(rows) == pytest.approx(expected, rel=1e-9)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_rows_that_nobody_sampled_say_nothing() -> None:
    model = exact_model()
    rows = sampled(model)
    unknown = [structs.replace(row, sampler=np.full(len(row.places), np.nan)) for row in rows]
    gradients = Gradients(model, Loss(), Packed(check=False))
    assert gradients.moved(unknown) is None
    assert gradients.moved([*unknown, *rows]) == pytest.approx(0.0, abs=1e-12)
