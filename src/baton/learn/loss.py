"""Losses: what a recipe's `[loss] kind` names, and how tokens become one number to minimise.

A kind of loss is a function from tokens to one number per token. It sees the log-probabilities under the weights being
trained (`new`), under those that ratios are taken against (`old`), and the advantages. It does not know whether tokens
lie on a forest or in rows, does no averaging and applies no weights; `total` does, alike for every kind:

    L = (1/D) sum_t w_t [c_t l_t - a H_t + b KL_t]

D is the number of trained tokens of the whole update, not of a micro-batch or a row, so how rows are cut into passes
changes nothing; or, as in Dr. GRPO, a constant length times the number of sequences. w averages 1 (`update.scaled`), c
corrects for who sampled (`correction_of`), H is the entropy, and KL to a reference is estimated by exp(r) - r - 1,
r = log pi_ref - log pi (Schulman's k3 [M]).

A loss of your own is a `LossKind`; a recipe names it by `module:attr`, and `baton.testing.check_loss` checks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from msgspec import Struct, structs
from numpy.typing import NDArray
from torch import Tensor

from baton import registry
from baton.errors import TraceError, UsageError
from baton.forest.layout import PackedBatch

Level = Literal["group", "trace", "agent", "turn"]
Correction = Literal["auto", "off", "truncate", "mask"]
Evidence = Literal["P", "C", "A", "M", "I"]
"""From the paper's text, the authors' code, an abstract or secondary source, textbooks, or inferred here."""


class Tokens(Struct, frozen=True, kw_only=True, eq=False):
    """T trained tokens, as a loss sees them."""

    new: Tensor
    """Log-probability under the weights being trained; carries the gradient."""
    old: Tensor
    """What ratios are taken against."""
    sampler: Tensor
    """Log-probability under the distribution that drew the token."""
    advantage: Tensor
    weight: Tensor
    sequence: Tensor
    """Which row a token belongs to, from 0."""
    stale: Tensor
    """Whether other weights than those being trained sampled the token."""
    whole: bool = True
    """Whether every row still has all of its tokens (see `baton.forest.layout.once`)."""
    reference: Tensor | None = None
    entropy: Tensor | None = None


class LossKind(Struct, frozen=True, kw_only=True):
    """One loss: its formula, what it needs, and the settings it was published with."""

    name: str
    per_token: Callable[[Tokens, float, float], Tensor]
    """The loss of each token, given the two bounds."""
    uses_ratio: bool = True
    """Whether the ratio to `old` is in it. A loss without one is corrected for who sampled instead."""
    whole_sequences: bool = False
    """Whether a ratio is taken over a whole row, so that rows which gave tokens to another are refused."""
    labels: Literal["none", "chosen", "pairs"] = "none"
    """Whether it learns from labels instead of advantages: from chosen answers alone, or from pairs of a chosen and a
    rejected one (see `baton.learn.preference`)."""
    bounds: Literal["ratio", "log_ratio", "none"] = "ratio"
    """What `low` and `high` bound: the ratio, between 1 - low and 1 + high, or its logarithm, between low and high."""
    low: float = 0.0
    high: float = 0.0
    scale: tuple[Level, ...] = ()
    length: int | None = None
    formula: str
    source: str
    evidence: Evidence


# The formulas. rho is exp(new - old).


def reinforce(tokens: Tokens, low: float, high: float) -> Tensor:  # noqa: ARG001  # it has no bounds
    """The policy gradient itself; the value means nothing."""
    return -tokens.advantage * tokens.new


def clipped_ratio(tokens: Tokens, low: float, high: float) -> Tensor:
    """PPO: no gradient where a step would take the ratio further out of its bounds."""
    return _clipped(torch.exp(tokens.new - tokens.old), tokens.advantage, low, high)


def sequence_ratio(tokens: Tokens, low: float, high: float) -> Tensor:
    """GSPO: one ratio for a whole row, the geometric mean of its tokens' ratios, clipped as PPO's."""
    total, count = _log_ratios(tokens, "gspo")
    return _clipped(torch.exp(total / count.clamp(min=1))[tokens.sequence], tokens.advantage, low, high)


def action_ratio(tokens: Tokens, low: float, high: float) -> Tensor:
    """MARFT: an answer is one action, so one ratio for a whole row, the product of its tokens', clipped as PPO's."""
    total, _ = _log_ratios(tokens, "action")
    return _clipped(torch.exp(total)[tokens.sequence], tokens.advantage, low, high)


def _log_ratios(tokens: Tokens, name: str) -> tuple[Tensor, Tensor]:
    """Of each row, the sum of its tokens' log-ratios, and how many tokens it has."""
    if not tokens.whole:
        raise UsageError(
            f"{name} needs whole sequences, and some rows gave tokens to the fork they were sampled in. "
            'Set pack.duplicates = "row_exact", or take a token-level loss (ppo, cispo).'
        )
    difference = tokens.new - tokens.old
    count = torch.bincount(tokens.sequence).to(difference.dtype)
    return torch.zeros_like(count).index_add(0, tokens.sequence, difference), count


def weighted_by_ratio(tokens: Tokens, low: float, high: float) -> Tensor:
    """CISPO: the clipped ratio is a constant weight on REINFORCE, so that no token loses its gradient."""
    ratio = torch.exp(tokens.new.detach() - tokens.old).clamp(1 - low, 1 + high)
    return -ratio * tokens.advantage * tokens.new


def masked_ratio(tokens: Tokens, low: float, high: float) -> Tensor:
    """A token whose log-ratio leaves its bounds has no gradient, whatever its advantage's sign."""
    inside = ~_outside(tokens, low, high)
    return -(inside * torch.exp(tokens.new - tokens.old) * tokens.advantage)


def _clipped(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def _outside(tokens: Tokens, low: float, high: float) -> Tensor:
    """Which tokens' log-ratio lies outside of the bounds."""
    ratio = (tokens.new - tokens.old).detach()
    return (ratio < low) | (ratio > high)


PPO = LossKind(
    name="ppo",
    per_token=clipped_ratio,
    low=0.2,
    high=0.2,
    formula="-min(rho A, clip(rho, 1-low, 1+high) A)",
    source="arXiv 1707.06347",
    evidence="P",
)

LOSSES: dict[str, LossKind] = {
    kind.name: kind
    for kind in (
        LossKind(
            name="reinforce",
            per_token=reinforce,
            uses_ratio=False,
            bounds="none",
            formula="-A log pi",
            source="Williams 1992",
            evidence="M",
        ),
        PPO,
        # The mean over rollouts of the mean over their tokens: an output of the paper is a whole rollout here.
        structs.replace(PPO, name="grpo", scale=("trace",), source="arXiv 2402.03300"),
        # A constant length; set it to yours.
        structs.replace(PPO, name="dr_grpo", length=1024, source="arXiv 2503.20783"),
        # An asymmetric clip, and the mean over tokens.
        structs.replace(PPO, name="dapo", high=0.28, source="arXiv 2503.14476"),
        LossKind(
            name="gspo",
            per_token=sequence_ratio,
            whole_sequences=True,
            low=3e-4,
            high=4e-4,
            scale=("turn",),
            formula="-min(s A, clip(s, 1-low, 1+high) A), s = exp(mean of new - old over the sequence)",
            source="arXiv 2507.18071",
            evidence="P",
        ),
        LossKind(
            name="action",
            per_token=action_ratio,
            whole_sequences=True,
            low=0.2,
            high=0.2,
            scale=("turn",),
            formula="-min(s A, clip(s, 1-low, 1+high) A), s = exp(sum of new - old over the sequence)",
            source="MARFT, arXiv 2504.16129",
            evidence="C",
        ),
        # MiniMax-M1 clips from above only (low = 1) and does not print its bound; 5 is ours [I].
        LossKind(
            name="cispo",
            per_token=weighted_by_ratio,
            low=1.0,
            high=4.0,
            formula="-sg[clip(rho, 1-low, 1+high)] A log pi",
            source="arXiv 2506.13585",
            evidence="P",
        ),
        # The bounds are not published; ours are -ln 2 and ln 2 [I].
        LossKind(
            name="masked",
            per_token=masked_ratio,
            bounds="log_ratio",
            low=-math.log(2),
            high=math.log(2),
            formula="-1[low <= log rho <= high] rho A",
            source="Kimi PARL, as described",
            evidence="A",
        ),
        # Of labels: `baton.learn.preference` makes rows of them whose policy gradient is that of these.
        LossKind(
            name="sft",
            per_token=reinforce,
            uses_ratio=False,
            labels="chosen",
            bounds="none",
            formula="-log pi of chosen answers",
            source="MALT, arXiv 2412.01928",
            evidence="P",
        ),
        LossKind(
            name="dpo",
            per_token=reinforce,
            uses_ratio=False,
            labels="pairs",
            bounds="none",
            formula="-log sigmoid(beta [log pi/ref (chosen) - log pi/ref (rejected)])",
            source="arXiv 2305.18290",
            evidence="P",
        ),
    )
}
"""What Baton ships. Advantages, with or without a deviation, are credit's."""


@cache
def _kind(name: str) -> LossKind:
    found = registry.resolve("loss", name)
    if not isinstance(found, LossKind):
        raise UsageError(f"loss {name!r} is a {type(found).__name__}; expected a baton.learn.loss.LossKind.")
    return found


class Loss(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The loss of a recipe: a kind and its settings; None is the kind's own."""

    kind: str = "ppo"
    """A name in `LOSSES`, of an installed package, or `module:attr`."""
    low: float | None = None
    high: float | None = None
    """Bounds of the ratio; each kind has its own meaning of them."""
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
    scale: tuple[Level, ...] | None = None
    """Levels that count alike (see `baton.learn.update.scaled`)."""
    added: tuple[Level, ...] = ()
    """Of the levels of `scale`, those that are added up and not averaged."""
    length: int | None = None
    """Divide by sequences times this, instead of by tokens."""
    beta: float = 0.1
    """Of preferences: how much a difference to the reference counts."""

    def __post_init__(self) -> None:
        low, high = self.limits
        sound = {"none": True, "log_ratio": low <= high, "ratio": low >= 0 <= high}
        if not sound[self.rule.bounds]:
            raise UsageError(f"loss {self.kind!r} cannot have the bounds {low} and {high}.")
        if odd := [level for level in self.added if level not in self.levels]:
            raise UsageError(
                f"loss.added names {odd[0]!r}, and loss.scale is {list(self.levels)}. Name levels of the scale."
            )
        if self.length is not None and self.length < 1:
            raise UsageError(f"length is {self.length}; expected the longest completion in tokens.")

    @property
    def rule(self) -> LossKind:
        """The formula that `kind` names, with what it declares of itself."""
        return _kind(self.kind)

    @property
    def limits(self) -> tuple[float, float]:
        """The two bounds, as set or as the kind has them."""
        rule = self.rule
        return rule.low if self.low is None else self.low, rule.high if self.high is None else self.high

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that count alike, as set or as the kind has them."""
        return self.rule.scale if self.scale is None else self.scale

    @property
    def samples_needed(self) -> bool:
        """Whether the sampler's log-probabilities are in it; otherwise they may be missing."""
        return self.rule.uses_ratio and not self.against_now

    def denominator(self, num_tokens: int, num_sequences: int) -> float:
        """What the whole update divides by."""
        length = self.rule.length if self.length is None else self.length
        return float(num_tokens if length is None else num_sequences * length)


def tokens_of(
    batch: PackedBatch,
    new: Tensor,
    *,
    against_now: bool = False,
    reference: Tensor | None = None,
    entropy: Tensor | None = None,
) -> Tokens:
    """From edges to tokens. `new`, `reference` and `entropy` are on the batch's edges."""
    # Few transfers and no question to the device: on a GPU each would wait for the pass to be done.
    of, sequence = _sent(np.stack((batch.of, batch.sequence)), new.device)
    reals = np.stack((batch.sampler, batch.advantage, batch.weight))
    sampler, advantage, weight = _sent(reals, new.device).to(new.dtype)
    here = new[of]
    if not against_now and np.isnan(batch.sampler).any():
        raise TraceError(
            "some calls have no recorded log-probabilities, so the ratio to what sampled them is not known. "
            "Sample with log-probs, or set against='now' and correction='off'."
        )
    return Tokens(
        new=here,
        old=here.detach() if against_now else sampler,
        sampler=sampler,
        advantage=advantage,
        weight=weight,
        sequence=sequence,
        stale=_sent(batch.stale, new.device),
        whole=batch.whole,
        reference=None if reference is None else reference[of],
        entropy=None if entropy is None else entropy[of],
    )


def _sent(values: NDArray[Any], device: torch.device) -> Tensor:
    found = torch.from_numpy(values)
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found.to(device)


def correction_of(tokens: Tokens, kind: Correction, low: float, high: float) -> Tensor:
    """A constant weight for each token, for who sampled it: c = exp(new - sampler).

    `truncate` is min(c, high), truncated importance sampling (Yao et al., "Your efficient RL framework secretly brings
    you off-policy RL training", 2025 [A]; high = 2). `mask` is c inside [low, high], else 0, as IcePop (Ling team, 2025
    [A]; 0.5 and 5). `auto` truncates the tokens that other weights than the trained ones sampled, and leaves the rest
    alone. A loss whose ratio is taken against the sampler corrects itself and is not given this.
    """
    ones = torch.ones_like(tokens.sampler)
    used = tokens.stale if kind == "auto" else torch.ones_like(tokens.stale)
    if kind == "off" or not bool(used.any()):
        return ones
    if bool(torch.isnan(tokens.sampler[used]).any()):
        raise TraceError(
            "calls sampled by other weights have no recorded log-probabilities, so they cannot be corrected for. "
            "Sample with log-probs, or set correction='off'."
        )
    ratio = torch.exp(tokens.new.detach() - tokens.sampler)
    if kind == "mask":
        weight = torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))
    else:
        weight = ratio.clamp(max=high)
    return torch.where(used, weight, ones)


def total(tokens: Tokens, loss: Loss, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of these tokens, and sums over tokens of what to watch."""
    rule, (low, high) = loss.rule, loss.limits
    each = rule.per_token(tokens, low, high)
    watch: dict[str, Tensor] = {}
    if not loss.samples_needed and rule.labels == "none":
        limit = loss.correction_high or (5.0 if loss.correction == "mask" else 2.0)
        weight = correction_of(tokens, loss.correction, loss.correction_low, limit)
        each = each * weight
        watch["correction"] = weight.sum()
    if rule.uses_ratio:
        watch["log_ratio"] = (tokens.new - tokens.old).detach().abs().sum()
        if not rule.whole_sequences and rule.bounds != "none":
            if rule.bounds == "ratio":
                low, high = math.log(1 - low) if low < 1 else -math.inf, math.log(1 + high)
            watch["clipped"] = _outside(tokens, low, high).sum()
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
