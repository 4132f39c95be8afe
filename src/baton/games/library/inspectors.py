"""What an inspector's report tells about a box, on an exact lattice of posteriors.

A box is good or bad. Beliefs are log-odds in whole multiples of a unit u. An inspector of skill m
sees a signal whose log-likelihood ratio is ±(m-1)u or ±(m+1)u (weak or strong), in proportions such
that its sign alone is worth exactly ±m u. A brief report is the sign, a full one the signal; so
every posterior is on the lattice and nothing is rounded.
"""

from __future__ import annotations

from math import exp, tanh

Lottery = tuple[tuple[float, int], ...]


def chance_good(log_odds: int, unit: float) -> float:
    """P(good) at this belief."""
    return (1.0 + tanh(log_odds * unit / 2)) / 2  # no overflow, however sure


def report(log_odds: int, skill: int, full: bool, unit: float) -> Lottery:
    """(probability, shift of the log-odds) for one report on a box at this belief."""
    if not full:
        return _mixture(log_odds, {skill: chance_good(skill, unit)}, unit)
    # a(1+e^-(m+1)u) + b(1+e^-(m-1)u) = 1 with a = b e^u: the sign's ratio is then exactly m u.
    weak = 1.0 / (exp(unit) * (1 + exp(-(skill + 1) * unit)) + 1 + exp(-(skill - 1) * unit))
    return _mixture(log_odds, {skill + 1: weak * exp(unit), skill - 1: weak}, unit)


def agreement(log_odds: int, skills: tuple[int, int], unit: float) -> Lottery:
    """The same for an unweighted vote of two: both signs agree, or they cancel."""
    first, second = chance_good(skills[0], unit), chance_good(skills[1], unit)
    both = first * second
    return _mixture(log_odds, {sum(skills): both, 0: (1 - both - (1 - first) * (1 - second)) / 2}, unit)


def _mixture(log_odds: int, if_good: dict[int, float], unit: float) -> Lottery:
    """Signals ±shift, likely as given if good and e^(-shift u) times that if bad, weighed by belief."""
    good = chance_good(log_odds, unit)
    chances: dict[int, float] = {}
    for shift, likely in if_good.items():
        for sign in (1, -1):
            in_good = likely if sign > 0 else likely * exp(-shift * unit)
            in_bad = in_good * exp(-sign * shift * unit)
            chances[sign * shift] = chances.get(sign * shift, 0.0) + good * in_good + (1 - good) * in_bad
    return tuple((p, shift) for shift, p in sorted(chances.items()))
