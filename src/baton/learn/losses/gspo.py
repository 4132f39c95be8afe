"""GSPO: one ratio for the whole sequence, the geometric mean of its tokens' ratios, clipped.

s = exp(mean over the row's trained tokens of (new - old)); -min(s A, clip(s, 1 - low, 1 + high) A).
arXiv 2507.18071 [P], with its bounds 3e-4 and 4e-4. A row here is a call; rows that were split or thinned
have another mean, so they are refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from baton.errors import UsageError
from baton.learn.losses.contract import Kind, Tokens

__all__ = ["GSPO"]


def _each(tokens: Tokens, low: float, high: float) -> Tensor:
    if not tokens.whole:
        raise UsageError(
            "gspo needs whole sequences, and some rows gave tokens to the fork they were sampled in. "
            'Set pack.duplicates = "row_exact", or take a token-level loss (ppo, cispo).'
        )
    difference = tokens.new - tokens.old
    count = torch.bincount(tokens.sequence).to(difference.dtype)
    mean = torch.zeros_like(count).index_add(0, tokens.sequence, difference) / count.clamp(min=1)
    ratio = torch.exp(mean)[tokens.sequence]
    return -torch.minimum(ratio * tokens.advantage, ratio.clamp(1 - low, 1 + high) * tokens.advantage)


GSPO = Kind(
    name="gspo",
    each=_each,
    low=3e-4,
    high=4e-4,
    takes_ratio=True,
    formula="-min(s A, clip(s, 1-low, 1+high) A), s = exp(mean of new - old over the sequence)",
    source="arXiv 2507.18071",
    evidence="P",
)
