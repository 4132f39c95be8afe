"""From a loss per token to one number: weights, correction, entropy, KL, and a global denominator.

L = (1/D) sum_t w_t [c_t l_t - a H_t + b KL_t]. D is the number of trained tokens of the whole update, not of
a micro-batch or a row, so how rows are cut into passes changes nothing; or, as in Dr. GRPO (arXiv 2503.20783
[P]), a constant length times the number of sequences. w averages 1 (see `scales`).
KL to a reference is estimated by exp(r) - r - 1, r = log pi_ref - log pi (Schulman's k3 [M]).
"""

from __future__ import annotations

import math

import torch
from msgspec import Struct
from torch import Tensor

from baton.errors import UsageError, nearest
from baton.learn.losses.cispo import CISPO
from baton.learn.losses.contract import Kind, Tokens, clipped
from baton.learn.losses.correction import Correction, correction_of
from baton.learn.losses.gspo import GSPO
from baton.learn.losses.masked import MASKED
from baton.learn.losses.ppo import PPO
from baton.learn.losses.reinforce import REINFORCE
from baton.learn.scales import Level

__all__ = ["KINDS", "Loss", "total"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (REINFORCE, PPO, GSPO, CISPO, MASKED)}


class Loss(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The loss of a recipe."""

    kind: str = "ppo"
    low: float | None = None
    """Lower bound of the ratio; each kind has its own default and meaning."""
    high: float | None = None
    against_now: bool = False
    """Take ratios against the weights as they are instead of the sampler's log-probabilities."""
    correction: Correction = "auto"
    correction_low: float = 0.5
    correction_high: float | None = None
    """None: 2 for truncate, 5 for mask."""
    entropy: float = 0.0
    """Coefficient of the entropy bonus."""
    kl: float = 0.0
    """Coefficient of the KL to the reference."""
    scale: tuple[Level, ...] = ()
    """Levels that count alike (see `scales`)."""
    length: int | None = None
    """Divide by sequences times this, instead of by tokens."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"there is no loss {self.kind!r}. {nearest(self.kind, KINDS)}")
        low, high = self.bounds
        if self.kind != "reinforce" and not (low <= high if self.kind == "masked" else low >= 0 <= high):
            raise UsageError(f"loss {self.kind!r} cannot have the bounds {low} and {high}.")
        if self.length is not None and self.length < 1:
            raise UsageError(f"length is {self.length}; expected the longest completion in tokens.")

    @property
    def bounds(self) -> tuple[float, float]:
        kind = KINDS[self.kind]
        return kind.low if self.low is None else self.low, kind.high if self.high is None else self.high

    def denominator(self, num_tokens: int, num_sequences: int) -> float:
        """What the whole update divides by."""
        return float(num_tokens if self.length is None else num_sequences * self.length)


def total(tokens: Tokens, loss: Loss, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of these tokens, and sums over tokens of what to watch."""
    kind = KINDS[loss.kind]
    low, high = loss.bounds
    each = kind.each(tokens, low, high)
    watch: dict[str, Tensor] = {}
    if loss.against_now or not kind.takes_ratio:
        limit = loss.correction_high or (5.0 if loss.correction == "mask" else 2.0)
        weight = correction_of(tokens, loss.correction, loss.correction_low, limit)
        each = each * weight
        watch["correction"] = weight.sum()
    if kind.takes_ratio:
        watch["log_ratio"] = (tokens.new - tokens.old).detach().abs().sum()
        if loss.kind != "gspo":  # its ratio is the sequence's
            watch["clipped"] = clipped(tokens, *_log_bounds(loss)).sum()
    if tokens.entropy is not None:
        watch["entropy"] = tokens.entropy.detach().sum()
        each = each - loss.entropy * tokens.entropy
    if loss.kl:
        if tokens.reference is None:
            raise UsageError("kl is set, and there is no reference. Give a reference model, or set kl to 0.")
        gap = tokens.reference - tokens.new
        divergence = torch.exp(gap) - gap - 1
        watch["kl"] = divergence.detach().sum()
        each = each + loss.kl * divergence
    return (tokens.weight * each).sum() / denominator, watch


def _log_bounds(loss: Loss) -> tuple[float, float]:
    low, high = loss.bounds
    if loss.kind == "masked":
        return low, high
    return math.log(1 - low) if low < 1 else -math.inf, math.log(1 + high)
