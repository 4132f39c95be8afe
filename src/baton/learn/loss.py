"""What a loss is given and gives: tokens in, one number per token out.

A loss is a function of the new log-probabilities, the old ones and the advantages. It does not know whether the
tokens lie on a forest or in rows, does no averaging and applies no weights: `total` does. So the loss of a
forest is the sum over rows for every kind here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from msgspec import Struct, structs
from numpy.typing import NDArray
from torch import Tensor

from baton.errors import TraceError, UsageError, nearest
from baton.forest.batch import Batch
from baton.learn.crediting import Level

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


# -- correction --
# Who sampled is not who trains: importance weights for losses that do not hold the sampler's ratio.
#
# c = exp(old - sampler), detached. `truncate`: min(c, high), as truncated importance sampling (Yao et al., "Your
# efficient RL framework secretly brings you off-policy RL training", 2025 [A]; high = 2). `mask`: c inside
# [low, high], else 0, as IcePop (Ling team, 2025 [A]; 0.5 and 5). `auto` truncates the tokens that other
# weights than the trained ones sampled, and leaves the rest alone.
#
# A loss whose ratio is taken against the sampler corrects itself: there c is 1.

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


# -- reinforce --
# REINFORCE: -A log pi. Its value means nothing; its gradient is the policy gradient.
#
# Williams, "Simple statistical gradient-following algorithms", 1992 [M].


def _each(tokens: Tokens, low: float, high: float) -> Tensor:  # noqa: ARG001  # no bounds
    return -tokens.advantage * tokens.new


REINFORCE = Kind(
    name="reinforce",
    each=_each,
    low=0.0,
    high=0.0,
    takes_ratio=False,
    formula="-A log pi",
    source="Williams 1992",
    evidence="M",
)


# -- ppo --
# PPO's clipped ratio on each token, with a bound of its own on each side.
#
# rho = exp(new - old); -min(rho A, clip(rho, 1 - low, 1 + high) A). PPO, arXiv 1707.06347 [P]; with group
# advantages it is GRPO's, arXiv 2402.03300 [P]; high > low is DAPO's asymmetric clip, arXiv 2503.14476 [P].


def _each_ppo(tokens: Tokens, low: float, high: float) -> Tensor:
    ratio = torch.exp(tokens.new - tokens.old)
    return -torch.minimum(ratio * tokens.advantage, ratio.clamp(1 - low, 1 + high) * tokens.advantage)


PPO = Kind(
    name="ppo",
    each=_each_ppo,
    low=0.2,
    high=0.2,
    takes_ratio=True,
    formula="-min(rho A, clip(rho, 1-low, 1+high) A)",
    source="arXiv 1707.06347",
    evidence="P",
)


# -- gspo --
# GSPO: one ratio for the whole sequence, the geometric mean of its tokens' ratios, clipped.
#
# s = exp(mean over the row's trained tokens of (new - old)); -min(s A, clip(s, 1 - low, 1 + high) A).
# arXiv 2507.18071 [P], with its bounds 3e-4 and 4e-4. A row here is a call; rows that were split or thinned
# have another mean, so they are refused.


def _each_gspo(tokens: Tokens, low: float, high: float) -> Tensor:
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
    each=_each_gspo,
    low=3e-4,
    high=4e-4,
    takes_ratio=True,
    formula="-min(s A, clip(s, 1-low, 1+high) A), s = exp(mean of new - old over the sequence)",
    source="arXiv 2507.18071",
    evidence="P",
)


# -- cispo --
# CISPO: the clipped ratio as a constant weight on REINFORCE, so that no token loses its gradient.
#
# -sg[clip(rho, 1 - low, 1 + high)] A log pi. MiniMax-M1, arXiv 2506.13585 [P]; it clips from above only
# (low = 1) and does not print its bound; 5 is ours [I].


def _each_cispo(tokens: Tokens, low: float, high: float) -> Tensor:
    ratio = torch.exp(tokens.new.detach() - tokens.old).clamp(1 - low, 1 + high)
    return -ratio * tokens.advantage * tokens.new


CISPO = Kind(
    name="cispo",
    each=_each_cispo,
    low=1.0,
    high=4.0,
    takes_ratio=True,
    formula="-sg[clip(rho, 1-low, 1+high)] A log pi",
    source="arXiv 2506.13585",
    evidence="P",
)


# -- masked --
# Masked log-ratio: a token whose log-ratio leaves [low, high] has no gradient, whatever its advantage's sign.
#
# -1[low <= new - old <= high] rho A. As described for Kimi PARL [A]; the bounds are not published, ours are
# -ln 2 and ln 2 [I].


def _each_masked(tokens: Tokens, low: float, high: float) -> Tensor:
    inside = ~clipped(tokens, low, high)
    return -(inside * torch.exp(tokens.new - tokens.old) * tokens.advantage)


MASKED = Kind(
    name="masked",
    each=_each_masked,
    low=-math.log(2),
    high=math.log(2),
    takes_ratio=True,
    formula="-1[low <= log rho <= high] rho A",
    source="Kimi PARL, as described",
    evidence="A",
)


# -- total --
# From a loss per token to one number: weights, correction, entropy, KL, and a global denominator.
#
# L = (1/D) sum_t w_t [c_t l_t - a H_t + b KL_t]. D is the number of trained tokens of the whole update, not of
# a micro-batch or a row, so how rows are cut into passes changes nothing; or, as in Dr. GRPO (arXiv 2503.20783
# [P]), a constant length times the number of sequences. w averages 1 (see `scales`).
# KL to a reference is estimated by exp(r) - r - 1, r = log pi_ref - log pi (Schulman's k3 [M]).

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


# -- named --
# The published losses by name, and what a recipe makes of one.

LOSSES: dict[str, tuple[Loss, str]] = {
    "reinforce": (Loss(kind="reinforce"), "Williams 1992 [M]"),
    "ppo": (Loss(kind="ppo"), "arXiv 1707.06347 [P]"),
    "grpo": (Loss(kind="ppo", scale=("turn",)), "arXiv 2402.03300 [P]: the mean over calls of token means"),
    "dr_grpo": (Loss(kind="ppo", length=1024), "arXiv 2503.20783 [P]: a constant length; set it to yours"),
    "dapo": (Loss(kind="ppo", low=0.2, high=0.28), "arXiv 2503.14476 [P]: asymmetric clip, mean over tokens"),
    "gspo": (Loss(kind="gspo", scale=("turn",)), "arXiv 2507.18071 [P]"),
    "cispo": (Loss(kind="cispo"), "arXiv 2506.13585 [P]"),
    "masked": (Loss(kind="masked"), "Kimi PARL [A]"),
}
"""Name -> settings and where they are from. Advantages (with or without a deviation) are credit's."""


def named_loss(name: str, **given: Any) -> Loss:
    """A loss by name, with other settings where they are given; None: its own."""
    if name not in LOSSES:
        raise UsageError(f"there is no loss {name!r}. {nearest(name, LOSSES)}")
    return structs.replace(
        LOSSES[name][0], **{key: value for key, value in given.items() if value is not None}
    )
