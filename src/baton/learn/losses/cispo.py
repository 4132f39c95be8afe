"""CISPO: the clipped ratio as a constant weight on REINFORCE, so that no token loses its gradient.

-sg[clip(rho, 1 - low, 1 + high)] A log pi. MiniMax-M1, arXiv 2506.13585 [P]; it clips from above only
(low = 1) and does not print its bound; 5 is ours [I].
"""

from __future__ import annotations

import torch
from torch import Tensor

from baton.learn.losses.contract import Kind, Tokens

__all__ = ["CISPO"]


def _each(tokens: Tokens, low: float, high: float) -> Tensor:
    ratio = torch.exp(tokens.new.detach() - tokens.old).clamp(1 - low, 1 + high)
    return -ratio * tokens.advantage * tokens.new


CISPO = Kind(
    name="cispo",
    each=_each,
    low=1.0,
    high=4.0,
    takes_ratio=True,
    formula="-sg[clip(rho, 1-low, 1+high)] A log pi",
    source="arXiv 2506.13585",
    evidence="P",
)
