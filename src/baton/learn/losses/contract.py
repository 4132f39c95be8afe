"""What a loss is given and gives: tokens in, one number per token out.

A loss is a function of the new log-probabilities, the old ones and the advantages. It does not know whether the
tokens lie on a forest or in rows, does no averaging and applies no weights: `total` does. So the loss of a
forest is the sum over rows for every kind here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor

from baton.errors import TraceError
from baton.learn.batch import Batch

__all__ = ["Evidence", "Kind", "Tokens", "clipped", "tokens_of"]

Evidence = Literal["P", "C", "A", "M", "I"]
"""From the paper's text, the authors' code, an abstract or secondary source, textbooks, or inferred here."""


class Tokens(Struct, frozen=True, kw_only=True, eq=False):
    """T trained tokens."""

    new: Tensor
    """Log-probability under the weights being trained; carries the gradient."""
    old: Tensor
    """What ratios are taken against."""
    sampler: Tensor
    """Under the distribution that drew the token."""
    advantage: Tensor
    weight: Tensor
    sequence: Tensor
    """Which row, from 0."""
    stale: Tensor
    whole: bool = True
    """No row has given tokens to another (see `duplicates`)."""
    reference: Tensor | None = None
    entropy: Tensor | None = None


class Kind(Struct, frozen=True, kw_only=True):
    """One loss."""

    name: str
    each: Callable[[Tokens, float, float], Tensor]
    """Tokens and the two bounds -> loss per token."""
    low: float
    high: float
    """Default bounds."""
    takes_ratio: bool
    """Whether the ratio to `old` is in it. One without is corrected for who sampled (`correction`)."""
    formula: str
    source: str
    evidence: Evidence


def clipped(tokens: Tokens, low: float, high: float) -> Tensor:
    """Which tokens' log-ratio lies outside of the bounds."""
    ratio = (tokens.new - tokens.old).detach()
    return (ratio < low) | (ratio > high)


def tokens_of(
    batch: Batch,
    new: Tensor,
    *,
    against_now: bool = False,
    reference: Tensor | None = None,
    entropy: Tensor | None = None,
) -> Tokens:
    """From edges to tokens. `new`, `reference` and `entropy` are on the batch's edges."""
    of = torch.from_numpy(batch.of).to(new.device)

    def real(values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(new.device, new.dtype)

    here = new[of]
    sampler = real(batch.sampler)
    if not against_now and bool(torch.isnan(sampler).any()):
        raise TraceError(
            "some calls have no recorded log-probabilities, so the ratio to what sampled them is not known. "
            "Sample with log-probs, or set against='now' and correction='off'."
        )
    return Tokens(
        new=here,
        old=here.detach() if against_now else sampler,
        sampler=sampler,
        advantage=real(batch.advantage),
        weight=real(batch.weight),
        sequence=torch.from_numpy(batch.sequence).to(new.device),
        stale=torch.from_numpy(batch.stale).to(new.device),
        whole=batch.whole,
        reference=None if reference is None else reference[of],
        entropy=None if entropy is None else entropy[of],
    )
