"""E1, task success: verified success, item-F1 for lists and tables, normalised regret.

S = P(verified success). Item-F1 as WideSearch scores tables: of sets of rows, or of cells where the
gold data names the columns that identify a row. Normalised regret = (V* - V_pi)/(V* - V_ref): 0 is
optimal, 1 is as good as the reference; below 0 is luck, above 1 is worse than the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from baton.measure.figure import Figure, NotMeasured, mean, not_measured, proportion, told
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.trace import gold as gold_data


def success(readings: Iterable[MeasuredTrace]) -> Figure:
    """Share of traces whose answer is verified right, with Wilson's interval."""
    right, why_not = told(readings, _is_right)
    return proportion(sum(right), len(right)) if right else why_not


def _is_right(reading: MeasuredTrace) -> bool:
    gold = reading.gold
    if not 0 <= reading.outcome <= 1 or (gold.optimum is not None and not gold.can_verify):
        raise NotMeasured("the outcome is a return and no verdict: see normalised regret")
    return reading.succeeded


@metric("outcome", "E1", bounds=(-math.inf, math.inf))
def outcome(reading: MeasuredTrace) -> float:
    """Score of the team's answer, or a game's return."""
    return reading.outcome


@metric("item_f1", "E1", bounds=(0.0, 1.0))
def item_f1(reading: MeasuredTrace) -> float:
    """F1 of the answer's items against the right ones."""
    gold = reading.gold
    if gold.items is None:
        raise NotMeasured("no right items are given")
    return gold_data.item_f1(reading.answer, gold)


def normalised_regret(returns: Sequence[float], optimum: float, reference: float) -> Figure:
    """(V* - V_pi)/(V* - V_ref) from a policy's returns."""
    if optimum <= reference:
        return not_measured("the reference is as good as the optimum, so there is no regret to compare with")
    return mean((optimum - value) / (optimum - reference) for value in returns)


@metric("normalised_regret", "E1", bounds=(-math.inf, math.inf))
def regret(reading: MeasuredTrace) -> float:
    """(V* - V)/(V* - V_ref): 0 as good as the optimum, 1 as good as the reference."""
    gold = reading.gold
    if gold.optimum is None or gold.reference is None:
        raise NotMeasured("no solver's optimum and reference value are given")
    found = normalised_regret([reading.outcome], gold.optimum, gold.reference)
    if found.value is None:
        raise NotMeasured(found.why_not)
    return found.value
