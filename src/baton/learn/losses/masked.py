"""Masked log-ratio: a token whose log-ratio leaves [low, high] has no gradient, whatever its advantage's sign.

-1[low <= new - old <= high] rho A. As described for Kimi PARL [A]; the bounds are not published, ours are
-ln 2 and ln 2 [I].
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from baton.learn.losses.contract import Kind, Tokens, clipped

__all__ = ["MASKED"]


def _each(tokens: Tokens, low: float, high: float) -> Tensor:
    inside = ~clipped(tokens, low, high)
    return -(inside * torch.exp(tokens.new - tokens.old) * tokens.advantage)


MASKED = Kind(
    name="masked",
    each=_each,
    low=-math.log(2),
    high=math.log(2),
    takes_ratio=True,
    formula="-1[low <= log rho <= high] rho A",
    source="Kimi PARL, as described",
    evidence="A",
)
