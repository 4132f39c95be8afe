"""Drawing tokens from logits, one uniform number per row.

Each row's draw is the inverse of its own cumulative distribution at its own number, so it depends on
nothing but that row's logits and key; rounding in the logits can change a token only if the number lies
within that rounding of an edge. The log-probability is of the distribution actually drawn from: after
temperature, then top-k, then top-p, normalised again. Temperature 0 takes the best token, with
log-probability 0, because that distribution has one outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from baton.trace.call import Sampling

__all__ = ["Drawer"]


class Drawer:
    """Draws for a fixed set of rows."""

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        self._greedy = torch.tensor([s.temperature == 0 for s in samplings], device=device)
        self._any_greedy = any(s.temperature == 0 for s in samplings)
        self._all_greedy = all(s.temperature == 0 for s in samplings)
        self._flat = all(s.temperature in (0, 1) for s in samplings)
        self._temperature = torch.tensor([s.temperature or 1.0 for s in samplings], device=device)[:, None]
        cut = [i for i, s in enumerate(samplings) if s.top_k is not None or s.top_p < 1]
        self._cut = torch.tensor(cut, device=device) if cut else None
        self._top_k = torch.tensor([samplings[i].top_k or 2**30 for i in cut], device=device)[:, None]
        self._top_p = torch.tensor([samplings[i].top_p for i in cut], device=device)[:, None]

    def draw(self, logits_NV: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and their log-probabilities; NaN where the logits make no distribution."""
        logits = logits_NV.float()
        if self._any_greedy:
            best = logits.argmax(-1)
            # Zero where the row is sound, NaN where it is not.
            sound = torch.where(torch.isfinite(logits.logsumexp(-1)), 0.0, torch.nan)
            if self._all_greedy:
                return best, sound
        if not self._flat:
            logits = logits / self._temperature
        if self._cut is not None:
            logits = logits.index_copy(0, self._cut, self._truncated(logits[self._cut]))
        logprobs = logits.log_softmax(-1)
        edges = logprobs.exp().cumsum(-1, dtype=torch.float64)
        total = edges[:, -1]
        # Strictly below the last edge, so a token of probability zero is never drawn.
        point = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
        tokens = torch.searchsorted(edges, point[:, None], right=True).clamp_(max=edges.shape[1] - 1)
        chosen = logprobs.gather(1, tokens)[:, 0]
        tokens = tokens[:, 0]
        if self._any_greedy:
            tokens = torch.where(self._greedy, best, tokens)
            chosen = torch.where(self._greedy, sound, chosen)
        return tokens, chosen

    def _truncated(self, logits: Tensor) -> Tensor:
        ordered, order = logits.sort(-1, descending=True)
        rank = torch.arange(logits.shape[1], device=logits.device)[None]
        ordered = ordered.masked_fill(rank >= self._top_k, -torch.inf)
        chance = ordered.softmax(-1)
        before = chance.cumsum(-1) - chance
        drop = (before >= self._top_p) & (rank > 0)
        ordered = ordered.masked_fill(drop, -torch.inf)
        return torch.empty_like(ordered).scatter_(1, order, ordered)
