"""E4, error amplification: how a worker's error becomes the team's.

Transmission tau_v = [P(fail | do(error at v)) - P(fail)]/(1 - P(fail)). Amplification slope g = dP(fail)/d eps,
eps the workers' error rate; closed forms: all must be right 1 - (1 - eps)^n, slope n (1 - eps)^(n-1); majority
of three 3 eps^2 - 2 eps^3, slope 6 eps (1 - eps); a verifier of recall r lets (1 - r) eps through, slope 1 - r.
Propagation R_e = newly corrupted agents per agent the error began in. The naive ratio E_MAS/E_SAS of failure
rates is here for comparability alone: it mixes what the team adds with what its agents get wrong anyway.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from baton.errors import BatonError
from baton.measure.figure import Figure, mean, not_measured, proportion, student_t
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.success import success
from baton.team.forks import Rerun
from baton.team.intervene import Replace

_Z = 1.959963984540054


def transmission(failures: float, n: int, failures_with_error: float, n_with_error: int) -> Figure:
    """tau from counts of failed runs without and with the error. 1: the error always sinks the team."""
    if n <= 0 or n_with_error <= 0:
        return not_measured("there are no runs to compare")
    base, hurt = failures / n, failures_with_error / n_with_error
    if base >= 1:
        return not_measured("the team fails without the error too, every time")
    # Newcombe's square-and-add interval of a difference, scaled as the estimate is.
    one, two = proportion(failures, n), proportion(failures_with_error, n_with_error)
    assert one.low is not None
    assert one.high is not None
    assert two.low is not None
    assert two.high is not None
    below = math.hypot(hurt - two.low, one.high - base)
    above = math.hypot(two.high - hurt, base - one.low)
    scale = 1 - base
    value = (hurt - base) / scale
    return Figure(value, value - below / scale, min(1.0, value + above / scale), n + n_with_error)


def transmission_at(
    readings: Sequence[MeasuredTrace], at: Sequence[str], error: str, rerun: Rerun, *, replicates: int = 1
) -> Figure:
    """tau by replay: each trace again, with `error` as the content of one event of it.

    The interval is over traces: runs of one trace share its fate, so replicates and further events of it make the
    value steadier and do not count as draws. Where their luck is all there is, it is wider than it need be.
    """
    failed = hurt = 0
    try:
        for reading, event in zip(readings, at, strict=True):
            failed += not reading.succeeded
            for k in range(replicates):
                again = MeasuredTrace(rerun(reading.trace, [Replace(event, error)], k), reading.gold)
                hurt += not again.succeeded
    except BatonError as refused:
        return not_measured(str(refused))
    if not readings or replicates < 1:
        return not_measured("there are no runs to compare")
    n, runs = len({reading.trace.trace_id for reading in readings}), len(readings)
    return transmission(failed * n / runs, n, hurt * n / (runs * replicates), n)


def amplification_slope(points: Iterable[tuple[float, float, int]]) -> Figure:
    """g by weighted least squares through (eps, failed runs, runs); with two points, the difference quotient."""
    known = sorted((eps, failed / n, n) for eps, failed, n in points if n > 0)
    if len({eps for eps, _, _ in known}) < 2:
        return not_measured("a slope needs runs at two error rates or more")
    # Weights by the binomial's variance, kept off zero by Laplace's rule.
    weight = [n / ((p * n + 1) / (n + 2) * (1 - (p * n + 1) / (n + 2))) for _, p, n in known]
    whole = math.fsum(weight)
    x = math.fsum(w * eps for w, (eps, _, _) in zip(weight, known, strict=True)) / whole
    y = math.fsum(w * p for w, (_, p, _) in zip(weight, known, strict=True)) / whole
    spread = math.fsum(w * (eps - x) ** 2 for w, (eps, _, _) in zip(weight, known, strict=True))
    value = math.fsum(w * (e - x) * (p - y) for w, (e, p, _) in zip(weight, known, strict=True)) / spread
    half = _Z / math.sqrt(spread)
    return Figure(value, value - half, value + half, sum(n for _, _, n in known))


def all_must_be_right(eps: float, n: int) -> tuple[float, float]:
    """(P(fail), slope) of a team that is right only if all n are."""
    return 1 - (1 - eps) ** n, n * (1 - eps) ** (n - 1)


def majority_of_three(eps: float) -> tuple[float, float]:
    """(P(fail), slope) of three independent voters."""
    return 3 * eps**2 - 2 * eps**3, 6 * eps * (1 - eps)


def verified(eps: float, recall: float) -> tuple[float, float]:
    """(P(fail), slope) behind a verifier that catches an error with probability `recall`."""
    return (1 - recall) * eps, 1 - recall


def propagation(corrupted: Sequence[Collection[str]], began_in: Sequence[Collection[str]]) -> Figure:
    """R_e: agents that an error reached beyond those it began in, per one it began in. One entry a run."""
    if not corrupted or not any(began_in):
        return not_measured("no error was put in")
    pairs = [(len(set(reached) - set(seeds)), len(set(seeds)))
             for reached, seeds in zip(corrupted, began_in, strict=True) if seeds]  # fmt: skip
    begun = sum(seeds for _, seeds in pairs)
    value = sum(new for new, _ in pairs) / begun
    n = len(pairs)
    if n < 2:
        return Figure(value, None, None, n)
    # A ratio of sums over runs: the spread of new - value * seeds.
    spread = math.fsum((new - value * seeds) ** 2 for new, seeds in pairs) / (n - 1)
    half = student_t(n - 1) * math.sqrt(n * spread) / begun
    return Figure(value, max(0.0, value - half), value + half, n)


def naive_ratio(team: Iterable[MeasuredTrace], single: Iterable[MeasuredTrace]) -> Figure:
    """E_MAS/E_SAS: the team's failure rate over the single agent's."""
    figures = success(team), success(single)
    for figure in figures:
        if figure.value is None:
            return mean([figure])
    ours, alone = (1 - (figure.value or 0.0) for figure in figures)
    if alone == 0:
        return not_measured("the single agent never fails, so there is nothing to compare with")
    value = ours / alone
    n = min(figure.n for figure in figures)
    if ours == 0:
        return Figure(0.0, 0.0, None, n)
    # Katz's interval of a ratio of two shares.
    half = _Z * math.sqrt((1 - ours) / (ours * figures[0].n) + (1 - alone) / (alone * figures[1].n))
    return Figure(value, value * math.exp(-half), value * math.exp(half), n)
