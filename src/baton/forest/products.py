"""A large pass's products on a CPU, by oneDNN.

torch multiplies float32 matrices by MKL, which on AMD's processors leaves out half of what they can do (AMD EPYC, one
thread: 95 GFLOP/s, oneDNN 200 to 240). oneDNN's product of a linear layer is an operation without a backward; this
module is that backward. Long sums are taken in another order, so numbers are the same up to rounding. Passes of fewer
tokens than `LEAST` are to be left as they are: runs of `tiny` games keep the numbers that were recorded of them.
T tokens, I numbers in, O out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

LEAST = 4096
"""Tokens of a large pass."""
_product: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


def large_products(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, layers of a large pass multiply by whatever is fastest here; forward, and what of it backward computes
    again."""
    known = _product is not None and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's
    return _ByOneDnn() if known and device.type == "cpu" else nullcontext()


class _ByOneDnn(TorchFunctionMode):
    """Takes the linear layers' calls; all others go their way."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # torch's signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is linear and len(args) + len(given) <= 3:
            return _linear(*args, **given)
        return func(*args, **given)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # torch's name
    if {input.dtype, weight.dtype} != {torch.float32} or input.numel() == 0 or input.dim() < 2:
        return linear(input, weight, bias)
    out: Tensor = _Linear.apply(input.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]  # torch's
    return out.view(*input.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_TI, weight_OI)
        return _multiplied(x_TI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> Any:
        x_TI, weight_OI = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _multiplied(grad_TO, weight_OI.t()) if needs_x else None,
            _weight_gradient(grad_TO, x_TI) if needs_weight else None,
            grad_TO.sum(0) if needs_bias else None,
        )


def _weight_gradient(grad_TO: Tensor, x_TI: Tensor) -> Tensor:
    """O x I. The operation copies what stands first where it is turned, so that is the narrower one."""
    if grad_TO.shape[1] <= x_TI.shape[1]:
        return _multiplied(grad_TO.t(), x_TI.t())
    return _multiplied(x_TI.t(), grad_TO.t()).t()


def _multiplied(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    found: Tensor = _product(x_TI, weight_OI, bias_O, "none", [], "")
    return found
