"""The effect of spawning from what was logged and what was forked: the arithmetic, without traces.

- Doubly robust, off the forks: m1 - m0 + d (R - m1)/p - (1-d) (R - m0)/(1-p), with p the recorded propensity
  after masks and m predicted from other rollouts (cross-fitted).
- Two samples of one effect are combined by inverse variance, each fold with the variances of the other, so the
  weights do not know the estimates they weigh.
- Draws that were not equally likely to be drawn count by the inverse of their chance (Hajek's ratio: its bias
  falls with their number, and is none where the chances are alike); its error is the jackknife's.
- Forks of a part of the log take the log's own guess of the effect as control variate.
- Centred over the two actions: A_spawn = (1-p) tau, A_noop = -p tau; the mean under the policy is zero, and
  "do not spawn" earns credit where it was right.
Sources: Robins, Rotnitzky and Zhao 1994; Chernozhukov et al. 2018; Hajek 1971; Tukey 1958; control variates over
two samples (double sampling), Cochran 1977, chapter 12 [M].
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from baton.credit.estimator import CreditError
from baton.trace.records import ROUNDING

Array = NDArray[np.float64]


class Effect(Struct, frozen=True, kw_only=True):
    """A mean effect and what it is made of."""

    value: float
    stderr: float | None
    terms: tuple[float, ...]
    """One per decision; their mean, weighed where they are, is the value."""


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
    return Effect(
        value=float(np.average(t, weights=w)), stderr=error if told else None, terms=tuple(t.tolist())
    )


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
    """A plain regression, cross-fitted: mean return of each (group, action) over the other folds.

    A fold is of whole rollouts: decisions of one share their return. `rollouts` says whose each decision is; without it
    each is its own. Where the other folds have none of a cell, the mean over that action; where they have none, over
    all; where nobody else is there, zero.
    """
    d, r = np.asarray(spawned, dtype=bool), np.asarray(returns, dtype=float)
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    cell = np.array([names[g] for g in groups])
    whose = range(len(r)) if rollouts is None else rollouts
    folds = {name: i % num_folds for i, name in enumerate(dict.fromkeys(whose))}
    fold = np.array([folds[name] for name in whose])
    predicted = np.empty((2, len(r)))
    for held in range(num_folds):
        other, here = fold != held, fold == held
        overall = r[other].mean() if other.any() else 0.0
        for action in (0, 1):
            taken = other & (d == bool(action))
            fallback = r[taken].mean() if taken.any() else overall
            counts = np.bincount(cell[taken], minlength=len(names))
            sums = np.bincount(cell[taken], r[taken], len(names))
            means = np.where(counts > 0, sums / np.maximum(counts, 1), fallback)
            predicted[action, here] = means[cell[here]]
    return predicted[1], predicted[0]


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
) -> Effect:
    """Two samples of one effect as one estimate, each fold weighed by the variances of the other.

    tau = sum w_k mean_k, w_k = (1/v_k) / sum 1/v; `weights` are of the draws within each mean. A sample that came out
    all alike does not tell its variance; it is taken as the other's over its own number, as if one more draw had shown
    it. Two such samples are just averaged.
    """
    samples = [_weighed(terms, given) for terms, given in zip((first, second), weights, strict=True)]
    if min(len(first), len(second)) < 4:
        raise CreditError(
            f"combining needs at least 4 of each kind to weigh them; there are {len(first)} and {len(second)}."
        )
    spreads = [_spread(*sample) for sample in samples]
    nothing = 1e-24 * max(1.0, *(float(np.abs(terms).max()) ** 2 for terms, _ in samples))
    if max(spreads) <= nothing:
        both = np.concatenate([terms for terms, _ in samples])
        return Effect(value=float(both.mean()), stderr=None, terms=tuple(both.tolist()))
    spreads = [
        v if v > nothing else other / len(terms)
        for v, other, (terms, _) in zip(spreads, spreads[::-1], samples, strict=True)
    ]
    values, variances = [], []
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
        variances.append(
            float(sum(t**2 * v / len(h[0]) for t, v, h in zip(trust, spreads, here, strict=True)))
        )
    return Effect(value=sum(values) / 2, stderr=math.sqrt(sum(variances)) / 2, terms=tuple(values))
