"""Voters and aggregation: how many voters there really are, and how much of what fusing can bring was brought.

n_eff = n/(1 + (n - 1) rho), rho the mean correlation of the voters' being right (Kish 1965's design effect).
Aggregation efficiency = (Acc - best single)/(Acc_opt - best single). Where Acc_opt is not given it is that of
the log-odds vote of independent voters with these accuracies (Nitzan and Paroush 1982), the truth of a yes-or-no
question with even odds; correlated voters can do worse than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, product

from msgspec import Struct

from baton.errors import UsageError
from baton.measure.figure import Figure, NotMeasured, jackknife, not_measured, told
from baton.measure.measured import MeasuredTrace
from baton.trace.graph.lineage import NO_EFFECT

_MAX_VOTERS = 20


class Ballot(Struct, frozen=True, kw_only=True):
    """One aggregate: how right each source was, and how right the result."""

    voters: dict[str, float]
    fused: float


def ballot(reading: MeasuredTrace) -> Ballot:
    """The last aggregate of the trace that two or more went into."""
    sources: dict[str, list[str]] = {}
    for edge in reading.trace.edges:
        if edge.type == "aggregate":
            sources.setdefault(edge.dst, []).append(edge.src)
    fused = [
        event for event in reading.events
        if event.type == "aggregate" and event.status not in NO_EFFECT and len(sources.get(event.id, ())) > 1
    ]  # fmt: skip
    if not fused:
        raise NotMeasured("nothing was aggregated from two or more")
    events = [reading.trace.event(source) for source in sources[fused[-1].id]]
    return Ballot(
        voters={event.agent: reading.verified(reading.said(event)) for event in events},
        fused=reading.verified(reading.said(fused[-1])),
    )


def ballots(readings: Iterable[MeasuredTrace]) -> list[Ballot] | Figure:
    """Those of the traces that have one, or the reason why none has."""
    found, why_not = told(readings, ballot)
    return found or why_not


def n_eff(votes: Sequence[Sequence[float]]) -> Figure:
    """Independent voters that these are worth. Rows are instances, columns voters, entries how right they were."""
    if not votes or len(votes[0]) < 2:
        return not_measured("there are fewer than two voters")
    return jackknife(votes, _n_eff)


def voters(readings: Iterable[MeasuredTrace]) -> Figure:
    """n_eff of the agents whose results were aggregated, over the traces in which the same ones voted."""
    found = ballots(readings)
    if isinstance(found, Figure):
        return found
    names = sorted(found[0].voters)
    same = [one for one in found if sorted(one.voters) == names]
    if len(same) < 3:
        return not_measured("fewer than three traces have the same voters")
    return n_eff([[one.voters[name] for name in names] for one in same])


def _n_eff(votes: Sequence[Sequence[float]]) -> float | None:
    columns = list(zip(*votes, strict=True))
    n = len(columns)
    found = [c for one, two in combinations(columns, 2) if (c := _correlation(one, two)) is not None]
    if not found:
        return None  # everybody was always right, or always wrong: nothing shows who depends on whom
    below = 1 + (n - 1) * math.fsum(found) / len(found)
    return n / below if below > 1e-12 else None


def _correlation(one: Sequence[float], two: Sequence[float]) -> float | None:
    n = len(one)
    middle = math.fsum(one) / n, math.fsum(two) / n
    both = math.fsum((a - middle[0]) * (b - middle[1]) for a, b in zip(one, two, strict=True))
    spread = math.fsum((a - middle[0]) ** 2 for a in one) * math.fsum((b - middle[1]) ** 2 for b in two)
    return both / math.sqrt(spread) if spread > 0 else None


def efficiency(accuracy: float, best_single: float, optimal: float) -> Figure:
    """(Acc - best single)/(Acc_opt - best single). Below 0: fusing lost what one of them knew."""
    if optimal <= best_single + 1e-12:
        return not_measured("no aggregator could do better than the best single one")
    return Figure((accuracy - best_single) / (optimal - best_single), None, None, 1)


def aggregation_efficiency(readings: Sequence[MeasuredTrace]) -> Figure:
    """The same from traces, over those in which the same voters voted."""
    found = ballots(readings)
    if isinstance(found, Figure):
        return found
    names = sorted(found[0].voters)
    same = [one for one in found if sorted(one.voters) == names]
    given = {r.gold.best_aggregate for r in readings if r.gold.best_aggregate is not None}
    if len(given) > 1:
        return not_measured("the gold data of these traces names different best aggregates")
    fixed = given.pop() if given else None
    if fixed is None and len(names) > _MAX_VOTERS:
        return not_measured(f"the best aggregate of more than {_MAX_VOTERS} voters is not given")

    def statistic(rows: Sequence[Ballot]) -> float | None:
        single = [math.fsum(row.voters[name] for row in rows) / len(rows) for name in names]
        best = optimal_accuracy(single) if fixed is None else fixed
        return efficiency(math.fsum(row.fused for row in rows) / len(rows), max(single), best).value

    figure = jackknife(same, statistic)
    if figure.value is None:
        return not_measured("no aggregator could do better than the best single one")
    return figure


def optimal_accuracy(accuracies: Sequence[float]) -> float:
    """How often the best fusion of independent voters is right, two answers at even odds; exact."""
    if len(accuracies) > _MAX_VOTERS:
        raise UsageError(f"{len(accuracies)} voters are too many to enumerate; give at most {_MAX_VOTERS}.")
    return math.fsum(
        max(_chance(accuracies, votes), _chance(accuracies, [not vote for vote in votes])) / 2
        for votes in product((True, False), repeat=len(accuracies))
    )


def _chance(accuracies: Sequence[float], right: Sequence[bool]) -> float:
    return math.prod(p if r else 1 - p for p, r in zip(accuracies, right, strict=True))
