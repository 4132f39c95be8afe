"""Spawn credit on the spawn bandit: difficulty confounds the log, and the naive marginal has the wrong sign."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from baton.credit.core.baseline import left_out
from baton.credit.estimators.spawn_effect import (
    Effect,
    combined,
    controlled,
    doubly_robust,
    effect_of,
    group_means,
    inverse_propensity,
)
from baton.games.library.spawn_bandit import SpawnBandit
from credit_bench.figures import Array, Figure, Target, score

__all__ = ["spawn_figures"]

_BATCH = 200
_FORKED = 40


class _Log:
    """Decisions as logged, and both branches as forks would show them."""

    def __init__(self, game: SpawnBandit, n: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.z = draw.choice(len(game.chances), n, p=game.chances)
        self.p: Array = np.array(game.logged)[self.z]
        self.d = draw.random(n) < self.p
        base, lift = np.array(game.base)[self.z], np.array(game.lift)[self.z]
        luck, other = draw.random(n), draw.random(n)
        self.with_helper: Array = (luck < base + lift).astype(float)
        self.alone: Array = (luck < base).astype(float)
        self.alone_apart: Array = (other < base).astype(float)
        self.r: Array = np.where(self.d, self.with_helper, self.alone)
        self.tau: Array = lift


def spawn_figures(num_samples: int = 10_000, seed: int = 0) -> tuple[list[Figure], list[Target]]:
    """Terms of one decision each for bias and error; batches of 200 decisions for sign and coverage."""
    game = SpawnBandit()
    log = _Log(game, num_samples, seed)
    m1, m0 = group_means(log.z.tolist(), log.d, log.r)
    terms: dict[str, Array] = {
        "inverse propensity": np.array(inverse_propensity(log.r, log.d, log.p).terms),
        "doubly robust": np.array(doubly_robust(log.r, log.d, log.p, m1, m0).terms),
        "independent pair": log.with_helper - log.alone_apart,
        "paired forks": log.with_helper - log.alone,
    }
    batches = [slice(i, i + _BATCH) for i in range(0, num_samples - _BATCH + 1, _BATCH)]
    naive = np.array([_naive(log.r[b], log.d[b]) for b in batches])
    figures = [_row("naive marginal", naive, np.full(len(naive), game.effect()), naive, None, False)]
    for name, each in terms.items():
        means = [effect_of(each[b]) for b in batches]
        values, errors = _arrays(means)
        figures.append(_row(name, each, log.tau, values, errors, True, game.effect()))
    robust, pairs = terms["doubly robust"], terms["paired forks"]
    joined = [combined(pairs[b][:_FORKED].tolist(), robust[b][_FORKED:].tolist()) for b in batches]
    values, errors = _arrays(joined)
    figures.append(
        _row(
            "40 forks + 160 doubly robust",
            values,
            np.full(len(values), game.effect()),
            values,
            errors,
            True,
        )
    )
    guess = m1 - m0
    part = [controlled(pairs[b][:_FORKED], guess[b][:_FORKED], guess[b]) for b in batches]
    values, errors = _arrays(part)
    truth = np.full(len(values), game.effect())
    figures.append(_row("40 forks, the log as control", values, truth, values, errors, True))
    figures.append(_groups_of_one_difficulty(game, num_samples, seed))
    return figures, [_signs(naive, pairs, batches), *_ratios(num_samples, seed)]


def _groups_of_one_difficulty(game: SpawnBandit, num_samples: int, seed: int, size: int = 8) -> Figure:
    """The return less the mean of the others of its group, as credit of the choice; exact: Q - V."""
    draw = np.random.default_rng(seed + 2)
    values: list[float] = []
    errors: list[float] = []
    truths: list[float] = []
    for _ in range(num_samples // size):
        z = draw.choice(len(game.chances), p=game.chances)
        p, base, lift = game.logged[z], game.base[z], game.lift[z]
        spawned = draw.random(size) < p
        won = (draw.random(size) < base + lift * spawned).astype(float)
        for advantage in left_out(won.tolist()):
            values.append(advantage.value)
            errors.append(math.nan if advantage.stderr is None else advantage.stderr)
        truths += np.where(spawned, (1 - p) * lift, -p * lift).tolist()
    return score(
        "spawn-bandit",
        "spawn decision",
        f"leave-one-out, groups of {size}",
        values,
        truths,
        unbiased=True,
        stderr=errors,
        listed="leave-one-out",
    )


def _signs(naive: Array, pairs: Array, batches: list[slice]) -> Target:
    right = float(np.mean([pairs[b].mean() > 0 for b in batches]))
    flipped = float((naive < 0).mean())
    return Target(
        what=f"paired-fork spawn credit: batches with the right sign (the naive marginal flips in {flipped:.0%})",
        value=right,
        target=">= 0.99",
        met=right >= 0.99 and flipped > 0.95,
    )


def _ratios(num_samples: int, seed: int) -> list[Target]:
    """Inverse propensity's variance over paired forks', as logged and where a spawn has chance .1 throughout.

    One decision in five is forked, and the log's own guess of the effect is the control variate. Of the plain pair no
    coupling has less variance: for outcomes of 0 and 1, E (R1 - R0)^2 >= |E (R1 - R0)|, which common luck attains.
    """
    targets = []
    for title, logged in (("as logged", (0.1, 0.9)), ("where a spawn has chance 0.1", (0.1, 0.1))):
        log = _Log(SpawnBandit(logged=logged), num_samples, seed)
        weighted = np.array(inverse_propensity(log.r, log.d, log.p).terms)
        pairs = log.with_helper - log.alone
        plain = float(weighted.var() / pairs.var())
        m1, m0 = group_means(log.z.tolist(), log.d, log.r)
        forked = np.random.default_rng(seed + 1).permutation(num_samples)[: num_samples * _FORKED // _BATCH]
        found = controlled(pairs[forked], (m1 - m0)[forked], m1 - m0)
        ratio = float(weighted.var() / ((found.stderr or math.nan) ** 2 * len(forked)))
        targets.append(
            Target(
                what=f"variance of inverse propensity over that of paired forks, {title}, for each decision forked "
                f"(without the log as control: {plain:.1f})",
                value=ratio,
                target=">= 50",
                met=ratio >= 50,
            )
        )
    return targets


def _arrays(effects: list[Effect]) -> tuple[Array, Array]:
    return np.array([e.value for e in effects]), np.array([e.stderr or 0.0 for e in effects])


def _naive(r: Array, taken: NDArray[np.bool_]) -> float:
    return float(r[taken].mean() - r[~taken].mean()) if taken.any() and not taken.all() else math.nan


def _row(
    name: str,
    terms: Array,
    truth: Array,
    batches: Array,
    errors: Array | None,
    unbiased: bool,
    effect: float | None = None,
) -> Figure:
    one = score("spawn-bandit", "spawn decision", name, terms, truth, unbiased=unbiased)
    many = score(
        "", "", "", batches, truth[0] if effect is None else effect, unbiased=unbiased, stderr=errors
    )
    return Figure(
        game=one.game,
        unit=one.unit,
        estimator=name,
        num_samples=one.num_samples,
        bias=one.bias,
        bias_z=one.bias_z,
        unbiased=unbiased,
        rmse=one.rmse,
        spearman=one.spearman,
        sign=many.sign,
        coverage=many.coverage,
        intervals=many.intervals,
        tokens=None,
    )
