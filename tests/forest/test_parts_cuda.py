"""The CUDA parts' bookkeeping, with torch's kernels written out for the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from exact_model import make_row
from plain_flash import deep, flash, flash_backward, flat

from baton.errors import UsageError
from baton.forest.attention import cuda
from baton.forest.attention.cuda import CudaPass
from baton.forest.attention.parts import make_pass, num_levels
from baton.forest.layout import plant
from baton.forest.rows import Row


@pytest.mark.parametrize("make", [deep, flat])
@pytest.mark.parametrize(("seed", "busy"), [(0, 1), (1, 1), (2, 10**6), (3, 10**6)])
def test_the_parts_make_the_forest(
    make: Callable[[np.random.Generator], list[Row]], seed: int, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one call for all that is below nodes, whole or in pieces that have copies of the keys."""
    monkeypatch.setattr(cuda, "_flash", flash)
    monkeypatch.setattr(cuda, "_flash_backward", flash_backward)
    monkeypatch.setattr(cuda, "BUSY", busy)
    monkeypatch.setattr(cuda, "_PIECE", 4)
    rows = make(np.random.default_rng(seed))
    layout, _ = plant(rows, least=seed % 2)
    assert (num_levels(layout) > 1) == (make is deep)
    count = layout.num_tokens
    q, k, v = (torch.randn(count, heads, 8, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2))
    index, end = torch.arange(count), torch.from_numpy(layout.end)
    sees = (index[None] <= index[:, None]) & (index[:, None] < end[None])
    plain = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=sees, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    current = CudaPass(layout, torch.device("cpu"))
    out = current.attend(q, k, v, 0.3)
    assert current.below is not None
    if make is flat or seed == 0:
        assert isinstance(current.below.queries, slice) == (make is flat)
    if make is flat:
        assert (current.below.key_table.shape[1] > 1) == (busy > 1)
    for table in (current.below.key_table, current.below.query_table):
        assert not (
            (table[:, :-1] < 0) & (table[:, 1:] >= 0)
        ).any()  # the kernels stop at the first that is not
    assert torch.allclose(out, plain, atol=1e-12)
    gradient = torch.randn_like(out)
    expected = torch.autograd.grad(plain, (q, k, v), gradient)
    for x, y in zip(torch.autograd.grad(out, (q, k, v), gradient), expected, strict=True):
        assert torch.allclose(x, y, atol=1e-12)


def test_float32_on_cuda_takes_the_block_mask() -> None:
    layout, _ = plant([make_row([1, 2, 3], 1, rng=np.random.default_rng(0))])
    with pytest.raises(UsageError, match="flex"):
        make_pass(layout, torch.float32, torch.device("cuda"), "parts")
