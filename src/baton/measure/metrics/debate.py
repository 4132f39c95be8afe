"""E3, consensus and debate: who held what in each round, how far they agreed, and how it ended.

Voters are the agents whose results the last aggregate fused by a vote; in a debate without one, the agents of one role
that the leading agent sent out. The position of a voter in round k is the k-th thing it told or returned to the agent
that fused them; what voters tell each other are arguments and no positions. Two positions are one
where they say the same (`baton.measure.meaning`). Agreement is the share of pairs of voters with one position;
diversity is its complement (Gini and Simpson's: the chance that two of them differ). Agreement that chance would bring
is taken off as Fleiss (1971) does it, with unequal numbers of voters: kappa = (P - P_e)/(1 - P_e), P the mean agreement
over traces and P_e the sum of squared shares of the answers over all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from baton.measure.figure import Figure, NotMeasured, jackknife, mean, not_measured, proportion, told
from baton.measure.meaning import Meaning
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Event

Ending = Literal["agreement", "majority", "rule", "cap"]
"""How a debate ended: all held one position, most held the answer, the answer is that of a minority or nobody's own,
or a budget ended it before an answer was given."""
ENDINGS: Final[tuple[Ending, ...]] = get_args(Ending)

_PARTS = frozenset({"merge", "summary"})
"""Aggregators that put parts together; what goes in are no votes."""


class Positions(Struct, frozen=True, kw_only=True):
    """What the voters of one trace held."""

    rounds: tuple[dict[str, str], ...]
    """For each round, voter -> what it held; who said nothing any more is left out."""

    @property
    def last(self) -> dict[str, str]:
        """What each held in the end."""
        return {agent: text for held in self.rounds for agent, text in held.items()}


def positions(reading: MeasuredTrace) -> Positions:
    """Voter by voter and round by round, or why there are none."""
    leader, voters = _voters(reading)
    said: dict[str, list[str]] = {agent: [] for agent in voters}
    for event in reading.events:
        speaks = event.type == "return" or (event.type == "message" and event.decision != "delegate")
        if speaks and event.agent in said and event.to in (leader, None) and event.status not in NO_EFFECT:
            said[event.agent].append(reading.said(event))
    heard = {agent: texts for agent, texts in said.items() if texts}
    if len(heard) < 2:
        raise NotMeasured("fewer than two agents returned a position")
    most = max(map(len, heard.values()))
    rounds = ({agent: texts[k] for agent, texts in heard.items() if k < len(texts)} for k in range(most))
    return Positions(rounds=tuple(rounds))


def _voters(reading: MeasuredTrace) -> tuple[str | None, list[str]]:
    """Who fused the positions, and who held them."""
    fused = _last_aggregate(reading)
    if fused is not None and fused[0].extra.get("method") not in _PARTS:
        return fused[0].agent, sorted({event.agent for event in fused[1]})
    if fused is not None:
        raise NotMeasured("what was aggregated were parts of an answer and no votes")
    if reading.trace.header.topology != "debate":
        raise NotMeasured("nothing was aggregated from two or more by a vote, and the team is no debate")
    root = reading.lineage.root
    crews: dict[str | None, list[str]] = {}
    for life in reading.lineage.lives.values():
        if life.parent == root and life.parent is not None:
            crews.setdefault(life.role, []).append(life.agent)
    most = max(map(len, crews.values()), default=0)
    return root, sorted(next((crew for crew in crews.values() if len(crew) == most), []))


def _last_aggregate(reading: MeasuredTrace) -> tuple[Event, list[Event]] | None:
    """The last aggregate of two or more, with what went into it."""
    sources: dict[str, list[Event]] = {}
    for edge in reading.trace.edges:
        if edge.type == "aggregate":
            sources.setdefault(edge.dst, []).append(reading.trace.event(edge.src))
    for event in reversed(reading.events):
        found = sources.get(event.id, [])
        if event.type == "aggregate" and event.status not in NO_EFFECT and len({e.agent for e in found}) > 1:
            return event, found
    return None


def agreement(texts: Sequence[str], meaning: Meaning) -> float:
    """The share of pairs that hold one position."""
    n = len(texts)
    if n < 2:
        raise NotMeasured("fewer than two agents held a position at a time")
    held = Counter(meaning.distinct(sorted(texts)))
    return math.fsum(count * (count - 1) for count in held.values()) / (n * (n - 1))


@metric("consensus", "E3", bounds=(0.0, 1.0))
def consensus(reading: MeasuredTrace) -> float:
    """Pairs of voters that held one position in the end, of all pairs."""
    return agreement(list(positions(reading).last.values()), reading.meaning)


@metric("debate_diversity", "E3", bounds=(0.0, 1.0), source="Gini-Simpson")
def debate_diversity(reading: MeasuredTrace) -> float:
    """Chance that two voters differ, the mean over the rounds."""
    found, why_not = told(positions(reading).rounds, lambda held: _diversity(held, reading.meaning))
    if not found:
        raise NotMeasured(why_not.why_not)
    return math.fsum(found) / len(found)


def _diversity(held: dict[str, str], meaning: Meaning) -> float:
    return 1 - agreement(list(held.values()), meaning)


@metric("resolution_reached", "E3", bounds=(0.0, 1.0))
def resolution_reached(reading: MeasuredTrace) -> float:
    """1 where all voters held one position in the end and the team answered it; 0 where a rule or a cap decided."""
    return float(ending(reading) == "agreement")


def ending(reading: MeasuredTrace) -> Ending:
    """How the debate ended."""
    last = positions(reading).last
    stops = [event for event in reading.events if event.decision == "stop"]
    if not stops or stops[-1].status == "forced":
        return "cap"
    answer = reading.answer
    for_it = sum(reading.meaning.same(text, answer) for text in last.values())
    if for_it == len(last):
        return "agreement"
    return "majority" if 2 * for_it > len(last) else "rule"


def endings(readings: Iterable[MeasuredTrace]) -> dict[Ending, Figure]:
    """The share of debates that ended in each way."""
    found, why_not = told(readings, ending)
    return {way: proportion(found.count(way), len(found)) if found else why_not for way in ENDINGS}


def diversity_by_round(readings: Sequence[MeasuredTrace]) -> dict[int, Figure]:
    """Round, from 1 -> the chance that two voters differ in it, over the traces that have such a round."""
    by_round: dict[int, list[float]] = {}
    for reading in readings:
        held = told([reading], positions)[0]
        for number, one in enumerate(held[0].rounds if held else (), 1):
            if len(one) > 1:
                by_round.setdefault(number, []).append(_diversity(one, reading.meaning))
    return {number: mean(values, (0.0, 1.0)) for number, values in sorted(by_round.items())}


def consensus_kappa(readings: Sequence[MeasuredTrace]) -> Figure:
    """Fleiss' kappa of what the voters held in the end, over traces."""
    found, why_not = told(readings, lambda reading: sorted(positions(reading).last.values()))
    if not found:
        return why_not
    if len(found) < 2:
        return not_measured("what chance would bring shows only over two traces or more")
    # One list of meanings for all traces: the same answer in two of them is one answer.
    meaning = readings[0].meaning
    numbers = iter(meaning.distinct([text for texts in found for text in texts]))
    ratings = [[next(numbers) for _ in texts] for texts in found]
    figure = jackknife(ratings, fleiss_kappa)
    if figure.value is None:
        return not_measured("everybody always answered the same, so chance would bring full agreement too")
    return figure


def fleiss_kappa(ratings: Sequence[Sequence[int]]) -> float | None:
    """(P - P_e)/(1 - P_e) of what each rater of each item said; None: all of it is the same answer."""
    every = Counter(rating for item in ratings for rating in item)
    expected = math.fsum((count / every.total()) ** 2 for count in every.values())
    if expected > 1 - 1e-12:
        return None
    agreed = [
        math.fsum(n * (n - 1) for n in Counter(item).values()) / (len(item) * (len(item) - 1))
        for item in ratings
    ]
    return (math.fsum(agreed) / len(agreed) - expected) / (1 - expected)
