"""The kernels of a training pass against the same functions in plain torch.

They need a GPU, or Triton's interpreter (TRITON_INTERPRET=1), which runs them on a CPU.
"""

from __future__ import annotations

import os
from types import ModuleType

import pytest
import torch
from torch import Tensor

from baton.forest.fused import plain


@pytest.fixture(scope="module")
def device() -> torch.device:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1")


@pytest.fixture(scope="module")
def ops(device: torch.device) -> ModuleType:  # skips first
    from baton.forest.fused import kernels

    return kernels


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def kind(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


def near(found: Tensor | None, expected: Tensor | None, kind: torch.dtype) -> None:
    if found is None or expected is None:
        assert found is expected
        return
    slack = 2e-5 if kind == torch.float32 else 2e-2  # the interpreter cuts off what a GPU rounds
    assert found.dtype == expected.dtype
    assert torch.allclose(
        found.float(), expected.float(), atol=slack * max(1.0, float(expected.float().abs().max()))
    )


@pytest.mark.parametrize("width", [48, 576])
@pytest.mark.parametrize("added", [False, True])
def test_norm(ops: ModuleType, device: torch.device, kind: torch.dtype, width: int, added: bool) -> None:
    x, h, grad, more = (torch.randn(7, width, device=device).to(kind) for _ in range(4))
    weight = torch.rand(width, device=device).to(kind) + 0.5
    other = h if added else None
    found, expected = ops.norm(x, other, weight, 1e-5), plain.norm(x, other, weight, 1e-5)
    for a, b in zip(found, expected, strict=True):
        near(a, b, kind)
    stream, _, scale = expected
    for residual, weighed in ((None, True), (more, False), (more, True)):
        given = grad, residual, stream, weight, scale
        for a, b in zip(
            ops.norm_backward(*given, weighed=weighed),
            plain.norm_backward(*given, weighed=weighed),
            strict=True,
        ):
            near(a, b, kind)


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(9, 3, 64), (4, 4, 16), (2, 1, 24)])
def test_turn(
    ops: ModuleType, device: torch.device, kind: torch.dtype, heads: int, kv_heads: int, size: int
) -> None:
    angles = torch.rand(5, size // 2, device=device) * 6
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    qkv = torch.randn(5, heads + 2 * kv_heads, size, device=device).to(kind)
    found, expected = qkv.clone(), qkv.clone()
    ops.turn(found, cos, sin, heads + kv_heads)
    plain.turn(expected, cos, sin, heads + kv_heads)
    near(found, expected, kind)
    assert torch.equal(found[:, heads + kv_heads :], qkv[:, heads + kv_heads :])
    parts = torch.split(torch.randn_like(qkv), [heads, kv_heads, kv_heads], 1)
    near(ops.turn_backward(*parts, cos, sin), plain.turn_backward(*parts, cos, sin), kind)


@pytest.mark.parametrize("inner", [40, 3000])
def test_gate(ops: ModuleType, device: torch.device, kind: torch.dtype, inner: int) -> None:
    both, grad = (
        torch.randn(6, 2 * inner, device=device).to(kind),
        torch.randn(6, inner, device=device).to(kind),
    )
    near(ops.gate(both), plain.gate(both), kind)
    for a, b in zip(ops.gate_backward(grad, both), plain.gate_backward(grad, both), strict=True):
        near(a, b, kind)


@pytest.mark.parametrize("vocab", [37, 5000])
@pytest.mark.parametrize("tempered", [False, True])
def test_chosen(ops: ModuleType, device: torch.device, kind: torch.dtype, vocab: int, tempered: bool) -> None:
    logits = (4 * torch.randn(6, vocab, device=device)).to(kind)
    target = torch.randint(0, vocab, (6,), device=device)
    heat = torch.rand(6, dtype=torch.float64, device=device) + 0.5 if tempered else None
    expected = plain.chosen(logits, target, heat)
    for a, b in zip(ops.chosen(logits, target, heat), expected, strict=True):
        near(a, b, kind)
    grad = torch.randn(6, device=device)
    wanted = plain.chosen_backward(grad, logits, expected[1], target, heat)
    near(ops.chosen_backward(grad, logits.clone(), expected[1], target, heat), wanted, kind)


def test_parts_are_joined_and_added(ops: ModuleType, device: torch.device, kind: torch.dtype) -> None:
    """Tokens with no part, one and two; heads that are no power of two."""
    out, more = torch.randn(5, 3, 8, device=device).to(kind), torch.randn(6, 3, 8, device=device).to(kind)
    lse, more_lse = torch.randn(3, 5, device=device), 3 * torch.randn(3, 6, device=device)
    table = torch.tensor([[-1, -1], [0, -1], [2, 1], [4, 5], [3, -1]], dtype=torch.int32, device=device)
    for a, b in zip(
        ops.join(out, lse, more, more_lse, table), plain.join(out, lse, more, more_lse, table), strict=True
    ):
        near(a, b, kind)
    few, less = torch.randn(5, 2, 8, device=device).to(kind), torch.randn(4, 2, 8, device=device).to(kind)
    keys = torch.tensor([[-1], [3], [0], [1], [2]], dtype=torch.int32, device=device)
    found, expected = ([out.clone(), few.clone(), few.clone()] for _ in range(2))
    for into, add in ((found, ops.add_parts), (expected, plain.add_parts)):
        add(tuple(into), (more, less, -less), table, keys)
    for a, b in zip(found, expected, strict=True):
        near(a, b, kind)
