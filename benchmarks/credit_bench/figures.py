"""What is said of an estimator on a game: bias, error, order, sign, coverage, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec import Struct, structs
from numpy.typing import ArrayLike, NDArray

from baton.credit.estimator import Credits
from baton.errors import BatonError
from baton.trace.records import Credit

__all__ = ["NORMAL_95", "Array", "Figure", "Target", "judge", "score", "spearman"]

Array = NDArray[np.float64]
NORMAL_95 = 1.959963984540054


class Figure(Struct, frozen=True, kw_only=True):
    """One estimator on one game. None: not measured, or it does not apply."""

    game: str
    unit: str
    estimator: str
    num_samples: int
    bias: float
    bias_z: float | None
    """Bias in standard errors of its mean."""
    unbiased: bool
    """Whether it claims to have none."""
    rmse: float
    spearman: float | None
    sign: float | None
    """Share of estimates on the right side of zero, where the truth is not zero; an estimate of zero counts half."""
    coverage: float | None
    """Of 95 % intervals, among the estimates that have one."""
    intervals: float | None
    """Share of estimates that have one; the others say that their error was not measured."""
    tokens: float | None
    """Re-run for one estimate; None where no team ran."""
    listed: str | None = None
    """The name `baton credit --list` has it by; None: a sampler on the game alone."""

    @property
    def rmse_per_token(self) -> float | None:
        """RMSE for one re-run token: it falls with the root of what is spent, so RMSE x sqrt(tokens) compares."""
        return self.rmse * math.sqrt(self.tokens) if self.tokens else None


class Target(Struct, frozen=True, kw_only=True):
    """A number that was promised."""

    what: str
    value: float
    target: str
    met: bool


def spearman(one: ArrayLike, two: ArrayLike) -> float | None:
    """Rank correlation, ties at their mean rank. None: one of the two does not vary."""
    a, b = _ranks(np.asarray(one, dtype=float)), _ranks(np.asarray(two, dtype=float))
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Array = (ends - (counts - 1) / 2)[place.ravel()]
    return ranks


def score(
    game: str,
    unit: str,
    estimator: str,
    estimates: ArrayLike,
    truth: ArrayLike,
    *,
    unbiased: bool,
    stderr: ArrayLike | None = None,
    tokens: float | None = None,
    listed: str | None = None,
) -> Figure:
    """Estimates against the truth, one by one."""
    e, t = np.asarray(estimates, dtype=float).ravel(), np.asarray(truth, dtype=float)
    t = np.broadcast_to(t, e.shape) if t.ndim == 0 else t.ravel()
    error = e - t
    spread = float(error.std(ddof=1)) if len(error) > 1 else 0.0
    bias = float(error.mean())
    signed = np.abs(t) > 1e-12
    covered = having = None
    if stderr is not None:
        se = (
            np.broadcast_to(np.asarray(stderr, dtype=float), e.shape)
            if np.ndim(stderr) == 0
            else np.ravel(stderr)
        )
        known = np.isfinite(se)
        having = float(known.mean())
        covered = (
            float((np.abs(error[known]) <= NORMAL_95 * se[known] + 1e-12).mean()) if known.any() else None
        )
    return Figure(
        game=game,
        unit=unit,
        estimator=estimator,
        num_samples=len(e),
        bias=bias,
        bias_z=bias / (spread / math.sqrt(len(e))) if spread > 0 else None,
        unbiased=unbiased,
        rmse=float(np.sqrt((error**2).mean())),
        spearman=spearman(e, t),
        sign=_signs(e[signed], t[signed]) if signed.any() else None,
        coverage=covered,
        intervals=having,
        tokens=tokens,
        listed=listed,
    )


def judge(
    game: str,
    estimator: str,
    credits: Credits,
    truths: Sequence[Mapping[str, float]],
    *,
    title: str | None = None,
    unbiased: bool = False,
    tokens: int | None = None,
    group_size: int = 1,
) -> Figure:
    """A listed estimator's credits against the exact ones, by target. `tokens`: re-run for all of them.

    Errors within a rollout, or within a group that is judged together, go together, so bias in standard errors is
    that of the means of `group_size` rollouts each.
    """
    found: list[tuple[Credit, float]] = []
    means: list[float] = []
    for start in range(0, len(credits), group_size):
        some = [
            (credit, truth[credit.target])
            for mine, truth in zip(
                credits[start : start + group_size], truths[start : start + group_size], strict=True
            )
            for credit in mine
            if credit.target in truth
        ]
        found += some
        means += [fmean(credit.value - value for credit, value in some)] if some else []
    if not found:
        raise BatonError("it gives no credit to a choice whose exact credit is known.")
    figure = score(
        game,
        found[0][0].unit,
        title or estimator,
        [credit.value for credit, _ in found],
        [value for _, value in found],
        unbiased=unbiased,
        stderr=[math.nan if credit.stderr is None else credit.stderr for credit, _ in found],
        tokens=None if tokens is None else tokens / len(found),
        listed=estimator,
    )
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    apart = fmean(means) / (spread / math.sqrt(len(means))) if spread > 1e-12 else None
    return structs.replace(figure, bias_z=apart)


def _signs(estimates: Array, truth: Array) -> float:
    right = np.sign(estimates) == np.sign(truth)
    return float(np.where(estimates == 0, 0.5, right).mean())
