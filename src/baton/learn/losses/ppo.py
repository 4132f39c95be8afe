"""PPO's clipped ratio on each token, with a bound of its own on each side.

rho = exp(new - old); -min(rho A, clip(rho, 1 - low, 1 + high) A). PPO, arXiv 1707.06347 [P]; with group
advantages it is GRPO's, arXiv 2402.03300 [P]; high > low is DAPO's asymmetric clip, arXiv 2503.14476 [P].
"""

from __future__ import annotations

import torch
from torch import Tensor

from baton.learn.losses.contract import Kind, Tokens

__all__ = ["PPO"]


def _each(tokens: Tokens, low: float, high: float) -> Tensor:
    ratio = torch.exp(tokens.new - tokens.old)
    return -torch.minimum(ratio * tokens.advantage, ratio.clamp(1 - low, 1 + high) * tokens.advantage)


PPO = Kind(
    name="ppo",
    each=_each,
    low=0.2,
    high=0.2,
    takes_ratio=True,
    formula="-min(rho A, clip(rho, 1-low, 1+high) A)",
    source="arXiv 1707.06347",
    evidence="P",
)
