"""Who sampled is not who trains: importance weights for losses that do not hold the sampler's ratio.

c = exp(old - sampler), detached. `truncate`: min(c, high), as truncated importance sampling (Yao et al., "Your
efficient RL framework secretly brings you off-policy RL training", 2025 [A]; high = 2). `mask`: c inside
[low, high], else 0, as IcePop (Ling team, 2025 [A]; 0.5 and 5). `auto` truncates the tokens that other
weights than the trained ones sampled, and leaves the rest alone.

A loss whose ratio is taken against the sampler corrects itself: there c is 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from baton.errors import TraceError
from baton.learn.losses.contract import Tokens

__all__ = ["Correction", "correction_of"]

Correction = Literal["auto", "off", "truncate", "mask"]


def correction_of(tokens: Tokens, kind: Correction, low: float, high: float) -> Tensor:
    """A constant weight for each token."""
    ones = torch.ones_like(tokens.sampler)
    used = tokens.stale if kind == "auto" else torch.ones_like(tokens.stale)
    if kind == "off" or not bool(used.any()):
        return ones
    if bool(torch.isnan(tokens.sampler[used]).any()):
        raise TraceError(
            "calls sampled by other weights have no recorded log-probabilities, so they cannot be corrected for. "
            "Sample with log-probs, or set correction='off'."
        )
    # Against the current weights where the loss has no ratio of its own, or takes it against them.
    ratio = torch.exp(tokens.new.detach() - tokens.sampler)
    if kind == "mask":
        weight = torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))
    else:
        weight = ratio.clamp(max=high)
    return torch.where(used, weight, ones)
