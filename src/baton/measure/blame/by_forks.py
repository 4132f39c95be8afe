"""Blame by forks: had this one decision been otherwise, with everybody's luck as it was, would it have gone wrong?

Each turn that led to the bad state is asked again with draws of its own. Where something else is said the run is forked
from there: whoever is not reached by it stands by, and all later draws have the keys they had, so that branch and run
differ through the change alone. A turn's effect is how much less bad the run comes out on average; an answer that comes
out the same costs its question alone, and changes nothing.

Ranked by effect, and among equals the earliest first: the first at which it could have been mended (Zhang et al. 2025,
arXiv 2505.00212, call it the decisive error). Within the budget the turns nearest to the bad state are asked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from baton.errors import BatonError
from baton.measure.blame.state import BadState
from baton.measure.figure import Figure, mean
from baton.team.altered import OtherAnswer
from baton.team.forking import Fork
from baton.team.forks import Cost, WhatIf, asking_again
from baton.team.protocol import Answer
from baton.team.recording import first_events
from baton.trace.graph.arrays import Graph
from baton.trace.records import Call
from baton.trace.trace import Trace


class BlameRunner(Protocol):
    """Whoever can run a trace again."""

    async def fork_all(self, trace: Trace, branches: Sequence[WhatIf]) -> list[Fork]: ...
    async def ask_all(self, trace: Trace, calls: Mapping[str, Sequence[int]]) -> dict[str, list[Answer]]: ...


class Suspect(Struct, frozen=True, kw_only=True):
    """A turn, and what would have come of the run had it gone otherwise."""

    event: str
    """The first thing it did."""
    call: str
    agent: str
    role: str | None
    effect: Figure
    """How much less bad the run comes out on average, over draws of its own; 1: always mended."""
    num_draws: int
    num_other: int
    """Draws that said something else."""
    num_mended: int
    """Draws by which the bad state is gone."""


class BlameReading(Struct, frozen=True, kw_only=True):
    """Who is responsible for a bad state, by forks."""

    suspects: tuple[Suspect, ...]
    """Those whose change makes a difference for the better, the most responsible first."""
    cleared: tuple[str, ...]
    """Calls that were tried and made none."""
    untried: tuple[str, ...]
    """Calls for which the budget had no room."""
    cost: Cost
    own_tokens: int
    refused: str | None = None
    """Why some could not be forked."""


async def blame_by_forks(
    trace: Trace, state: BadState, runner: BlameRunner, *, spend: float = 4.0, draws: int = 4
) -> BlameReading:
    """Ask every turn that led to the bad state again, as far as `spend` times the run's own tokens go."""
    first = first_events(trace)
    own = sum(event.tokens or 0 for event in trace.events)
    room, cost = spend * max(1, own), Cost()
    tried: list[Suspect] = []
    untried: list[str] = []
    refused: str | None = None
    for call in _candidates(trace, state):
        if cost.tokens >= room:
            untried.append(call.id)
            continue
        try:
            found, took = await _suspect(trace, state, runner, call, first[call.id].id, draws)
        except BatonError as error:
            refused = refused or str(error)
            untried.append(call.id)
            continue
        tried.append(found)
        cost += took
    guilty = [each for each in tried if (each.effect.value or 0.0) > 0]
    guilty.sort(key=lambda each: (-(each.effect.value or 0.0), trace.event(each.event).seq))
    return BlameReading(
        suspects=tuple(guilty),
        cleared=tuple(each.call for each in tried if (each.effect.value or 0.0) <= 0),
        untried=tuple(untried),
        cost=cost,
        own_tokens=own,
        refused=refused,
    )


def _candidates(trace: Trace, state: BadState) -> list[Call]:
    """The answered turns that led to the bad state, the nearest first; all, where nothing is known to lead there."""
    first = first_events(trace)
    led = frozenset(trace.position)
    if state.at is not None:
        graph = Graph.of(trace)
        led = frozenset(trace.events[int(i)].id for i in graph.ancestors(trace.position[state.at])) | {
            state.at
        }
    said: dict[str, set[str]] = {}
    for event in trace.events:
        if event.call is not None:
            said.setdefault(event.call, set()).add(event.id)
    found = [call for call in trace.calls if call.id in first and call.finish_reason != "error"]
    leading = [call for call in found if said.get(call.id, set()) & led] or found
    return sorted(leading, key=lambda call: -first[call.id].seq)


async def _suspect(
    trace: Trace, state: BadState, runner: BlameRunner, call: Call, event: str, draws: int
) -> tuple[Suspect, Cost]:
    """One turn asked again, and the forks of what else it said."""
    replicates = range(1, draws + 1)
    answers = (await runner.ask_all(trace, {call.id: replicates}))[call.id]
    cost = Cost(sum(asking_again(trace, call, answer) for answer in answers), len(answers))
    before = trace.text(call.completion_ref)
    others: dict[str, Answer] = {answer.text: answer for answer in answers if answer.text != before}
    branches = [WhatIf(said=OtherAnswer(call.id, answer)) for answer in others.values()]
    forks = await runner.fork_all(trace, branches)
    cost += Cost.of(forks)
    bad = state.badness(trace)
    after = {text: state.badness(fork.trace) for text, fork in zip(others, forks, strict=True)}
    values = [bad - after.get(answer.text, bad) for answer in answers]
    return Suspect(
        event=event,
        call=call.id,
        agent=call.agent,
        role=call.role,
        effect=mean(values, (-1.0, 1.0)),
        num_draws=len(answers),
        num_other=sum(answer.text != before for answer in answers),
        num_mended=sum(after.get(answer.text, bad) <= 0 for answer in answers),
    ), cost
