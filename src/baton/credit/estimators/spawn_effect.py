"""The effect of spawning from what was logged and what was forked: the arithmetic, without traces.

- Doubly robust, off the forks: Q(o) is m_o + 1[o taken] (R - m_o)/pi(o), with pi the recorded propensity after masks
  and m predicted from other rollouts (cross-fitted); of two options, m1 - m0 + d (R - m1)/p - (1-d) (R - m0)/(1-p).
- Its error is that of the design, whose chances are known: sum c(o)^2 (E(R - m_o)^2/pi(o) - E(Q(o) - m_o)^2) for each
  decision. A sample of such terms does not show its own variance where an option is rare: the few that took it are
  most of it.
- Two samples of one effect are combined by inverse variance, each fold with the variances of the other, so the
  weights do not know the estimates they weigh.
- Draws that were not equally likely to be drawn count by the inverse of their chance (Hajek's ratio: its bias
  falls with their number, and is none where the chances are alike); its error is the jackknife's.
- Forks of a part of the log take the log's own guess of the effect as control variate.
- Centred over the actions: A(o) = Q(o) - sum pi(o') Q(o'), of two (1-p) tau for a spawn and -p tau for none; the mean
  under the policy is zero, and "do not spawn" earns credit where it was right.
Sources: Robins, Rotnitzky and Zhao 1994; Chernozhukov et al. 2018; Hajek 1971; Tukey 1958; control variates over
two samples (double sampling), Cochran 1977, chapter 12 [M].
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from baton.credit.estimator import CreditError
from baton.trace.records import ROUNDING

Array = NDArray[np.float64]
Option = TypeVar("Option", bound=Hashable)


class Effect(Struct, frozen=True, kw_only=True):
    """A mean effect and what it is made of."""

    value: float
    stderr: float | None
    terms: tuple[float, ...]
    """One per decision; their mean, weighed where they are, is the value."""
    df: float = math.inf
    """Degrees of freedom of the error: how few draws it was told by."""


def centred(tau: ArrayLike, propensity: ArrayLike, spawned: ArrayLike) -> Array:
    """Advantage of what was done: (1-p) tau for a spawn, -p tau for none; p is the chance of a spawn."""
    t, p = np.asarray(tau, dtype=float), np.asarray(propensity, dtype=float)
    advantage: Array = np.where(np.asarray(spawned, dtype=bool), (1 - p) * t, -p * t)
    return advantage


def inverse_propensity(returns: ArrayLike, spawned: ArrayLike, propensity: ArrayLike) -> Effect:
    """d R/p - (1-d) R/(1-p): unbiased, and wild where p is near 0 or 1. Kept to be compared with."""
    return doubly_robust(returns, spawned, propensity, 0.0, 0.0)


def doubly_robust(
    returns: ArrayLike, spawned: ArrayLike, propensity: ArrayLike, with_spawn: ArrayLike, without: ArrayLike
) -> Effect:
    """Mean effect; right when the propensities are (always here: they are recorded) or the predictions are."""
    r, d = np.asarray(returns, dtype=float), np.asarray(spawned, dtype=float)
    p = np.asarray(propensity, dtype=float)
    if not ((p > 0) & (p < 1)).all():
        raise CreditError(
            "doubly robust credit needs both actions to have had a chance: a propensity is not inside (0, 1). "
            "Sample with epsilon > 0, or use paired forks there."
        )
    m1, m0 = np.asarray(with_spawn, dtype=float), np.asarray(without, dtype=float)
    terms = m1 - m0 + d * (r - m1) / p - (1 - d) * (r - m0) / (1 - p)
    return effect_of(terms)


def effect_of(terms: ArrayLike, weights: ArrayLike | None = None) -> Effect:
    """The mean of independent terms and its standard error. None: one term, or terms all alike, which do not tell."""
    t, w = _weighed(terms, weights)
    error = math.sqrt(_spread(t, w) / len(t)) if len(t) > 1 else 0.0
    told = error > ROUNDING * max(1.0, float(np.abs(t).max()))
    value = float(np.average(t, weights=w))
    return Effect(value=value, stderr=error if told else None, terms=tuple(t.tolist()), df=len(t) - 1)


def _weighed(terms: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    t = np.asarray(terms, dtype=float)
    return t, np.ones_like(t) if weights is None else np.asarray(weights, dtype=float)


def _spread(terms: Array, weights: Array) -> float:
    """Variance of the weighed mean, by the jackknife, times the number of terms; of equal weights, theirs."""
    share = weights / weights.sum()
    moved = share * (terms - np.average(terms, weights=weights)) / (1 - share)  # were this term not there
    return float((len(terms) - 1) * (moved**2).sum())


def group_means(
    groups: Sequence[Hashable],
    spawned: ArrayLike,
    returns: ArrayLike,
    *,
    rollouts: Sequence[Hashable] | None = None,
    num_folds: int = 2,
) -> tuple[Array, Array]:
    """`option_means` of two options, a spawn and none."""
    taken = np.asarray(spawned, dtype=bool).tolist()
    found = option_means(groups, taken, returns, (True, False), rollouts=rollouts, num_folds=num_folds)
    return found[True], found[False]


def option_means(
    groups: Sequence[Hashable],
    taken: Sequence[Option],
    returns: ArrayLike,
    options: Iterable[Option],
    *,
    rollouts: Sequence[Hashable] | None = None,
    num_folds: int = 2,
) -> dict[Option, Array]:
    """A plain regression, cross-fitted: mean return of each (group, option) over the other folds.

    A fold is of whole rollouts: decisions of one share their return. `rollouts` says whose each decision is; without it
    each is its own. Where the other folds have none of a cell, the mean over that option; where they have none, over
    all; where nobody else is there, zero.
    """
    r = np.asarray(returns, dtype=float)
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    cell = np.array([names[g] for g in groups])
    whose = range(len(r)) if rollouts is None else rollouts
    folds = {name: i % num_folds for i, name in enumerate(dict.fromkeys(whose))}
    fold = np.array([folds[name] for name in whose])
    predicted: dict[Option, Array] = {}
    for option in options:
        chose = np.array([each == option for each in taken], dtype=bool)
        predicted[option] = np.empty(len(r))
        for held in range(num_folds):
            other, here = fold != held, fold == held
            took = other & chose
            overall = r[other].mean() if other.any() else 0.0
            fallback = r[took].mean() if took.any() else overall
            counts = np.bincount(cell[took], minlength=len(names))
            sums = np.bincount(cell[took], r[took], len(names))
            means = np.where(counts > 0, sums / np.maximum(counts, 1), fallback)
            predicted[option][here] = means[cell[here]]
    return predicted


_PRIOR = 4
"""How many decisions of no option in particular are added to those of each, to tell how far returns are from their
predictions: an option that was taken once or twice cannot tell for itself."""


class Decisions(Struct, frozen=True, kw_only=True):
    """Like decisions of a log, with what was predicted for each of their options from other rollouts."""

    rollouts: Sequence[Hashable]
    taken: Sequence[str]
    chances: Sequence[Mapping[str, float]]
    returns: Sequence[float]
    predicted: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if any(not 0 < p < 1 for chances in self.chances for p in chances.values()):
            raise CreditError(
                "doubly robust credit needs every option to have had a chance: a propensity is not inside (0, 1). "
                "Sample with epsilon > 0, or use forks there (spawn-fork)."
            )

    def robust(self, contrast: Mapping[str, float]) -> Robust:
        """The mean over rollouts of sum c(o) Q(o), c a contrast of the options."""
        residuals = [self.returns[k] - self.predicted[o][k] for k, o in enumerate(self.taken)]
        times = Counter(self.rollouts)
        counts, sums = defaultdict[str, float](float), defaultdict[str, float](float)
        for rollout, option, x in zip(self.rollouts, self.taken, residuals, strict=True):
            counts[option] += 1 / times[rollout]  # a rollout counts once, however often it decided
            sums[option] += x * x / times[rollout]
        overall = math.fsum(sums.values()) / len(times)
        squares = {o: (sums[o] + _PRIOR * overall) / (counts[o] + _PRIOR) for o in contrast}
        known = {
            o: 1 / (1 + counts[o] / 2) for o in contrast
        }  # the share of it that m is off by itself: half tell m
        terms: dict[Hashable, list[float]] = {}
        spreads: dict[Hashable, list[float]] = {}
        for k, (rollout, chances) in enumerate(zip(self.rollouts, self.chances, strict=True)):
            guess = math.fsum(c * self.predicted[o][k] for o, c in contrast.items())
            shown = contrast[self.taken[k]] * residuals[k] / chances[self.taken[k]]
            terms.setdefault(rollout, []).append(guess + shown)
            # Decisions of one rollout share its luck, so their mean is as far off as one of them.
            spread = math.fsum(c * c * squares[o] * (1 / chances[o] - known[o]) for o, c in contrast.items())
            spreads.setdefault(rollout, []).append(spread)
        return Robust(
            terms=[math.fsum(own) / len(own) for own in terms.values()],
            weights=[len(own) for own in terms.values()],
            spreads=[math.fsum(own) / len(own) for own in spreads.values()],
            df=len(terms) - 1,
        )


class Robust(Struct, frozen=True, kw_only=True):
    """What each rollout of a log says of a contrast, how much it counts, and its variance by design."""

    terms: list[float]
    weights: list[int]
    spreads: list[float]
    df: float

    def effect(self) -> Effect:
        """Their mean, whose error is the design's. None: one rollout, or predictions that were never off."""
        w = np.asarray(self.weights, dtype=float)
        error = math.sqrt(float((w**2 * self.spreads).sum())) / float(w.sum())
        told = len(w) > 1 and error > ROUNDING * max(1.0, float(np.abs(self.terms).max()))
        return Effect(
            value=float(np.average(self.terms, weights=w)),
            stderr=error if told else None,
            terms=tuple(self.terms),
            df=max(self.df, 1),
        )


def controlled(pairs: ArrayLike, guess: ArrayLike, guess_all: ArrayLike) -> Effect:
    """Mean effect from the forks of a part of the log, with a guess of the effect as control variate.

    mean over forks of (tau - g) + mean over all logged decisions of g. The guess (m1 - m0 of other rollouts) knows how
    effects differ from decision to decision, so only what it misses is left to the few that were forked. Unbiased
    when the forked ones were chosen at random and g did not look at them. Var = Var(tau - g)/n + Var(g)/N + 2 Cov/N.
    """
    tau, g = np.asarray(pairs, dtype=float), np.asarray(guess, dtype=float)
    every = np.asarray(guess_all, dtype=float)
    if tau.shape != g.shape or not len(tau) or len(every) < len(tau):
        raise CreditError(
            f"a control variate needs a guess for each fork and for all logged decisions; got {len(tau)} forks, "
            f"{len(g)} guesses and {len(every)} for the log."
        )
    terms = tau - g + every.mean()
    error = None
    if len(tau) > 1:
        left, both = np.cov(tau - g, g)[0]
        error = math.sqrt(max(0.0, left / len(tau) + (float(every.var(ddof=1)) + 2 * both) / len(every)))
    return Effect(value=float(terms.mean()), stderr=error, terms=tuple(terms.tolist()))


def combined(
    first: Sequence[float],
    second: Sequence[float],
    weights: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    *,
    design: Robust | None = None,
) -> Effect:
    """Two samples of one effect as one estimate, each fold weighed by the variances of the other.

    tau = sum w_k mean_k, w_k = (1/v_k) / sum 1/v; `weights` are of the draws within each mean. `design`: where the
    second sample is from, if its error is to be that of the design. A sample that came out all alike does not tell its
    variance; it is taken as the other's over its own number, as if one more draw had shown it. Two such samples are
    just averaged. Degrees of freedom by Satterthwaite.
    """
    samples = [_weighed(terms, given) for terms, given in zip((first, second), weights, strict=True)]
    if min(len(first), len(second)) < 4:
        raise CreditError(
            f"combining needs at least 4 of each kind to weigh them; there are {len(first)} and {len(second)}."
        )
    spreads = [_spread(*sample) for sample in samples]
    free = [len(terms) - 1.0 for terms, _ in samples]
    if design is not None:
        stated = design.effect()
        spreads[1] = max(spreads[1], (stated.stderr or 0.0) ** 2 * len(second))
        free[1] = stated.df
    nothing = 1e-24 * max(1.0, *(float(np.abs(terms).max()) ** 2 for terms, _ in samples))
    if max(spreads) <= nothing:
        both = np.concatenate([terms for terms, _ in samples])
        return Effect(value=float(both.mean()), stderr=None, terms=tuple(both.tolist()))
    spreads = [
        v if v > nothing else other / len(terms)
        for v, other, (terms, _) in zip(spreads, spreads[::-1], samples, strict=True)
    ]
    values, variances = [], np.zeros(2)
    for fold in (0, 1):
        here = [(terms[fold::2], each[fold::2]) for terms, each in samples]
        there = [(terms[1 - fold :: 2], each[1 - fold :: 2]) for terms, each in samples]
        # Variance of this fold's mean, guessed from the other fold; where that saw none, from both.
        guess = [
            (seen if (seen := _spread(*o)) > nothing else spread) / len(h[0])
            for h, o, spread in zip(here, there, spreads, strict=True)
        ]
        trust = np.array([1 / g for g in guess]) / sum(1 / g for g in guess)
        means = [np.average(terms, weights=each) for terms, each in here]
        values.append(float(trust @ means))
        variances += [t**2 * v / len(h[0]) for t, v, h in zip(trust, spreads, here, strict=True)]
    total = float(variances.sum())
    df = total**2 / float((variances**2 / free).sum())
    return Effect(value=sum(values) / 2, stderr=math.sqrt(total) / 2, terms=tuple(values), df=df)
