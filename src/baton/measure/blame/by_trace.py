"""Blame where no fork can be made: by what stands in the trace, and no more.

Who did most of the work (text of its own that did not fail; to direct others is no work) is blamed first, at its first
act of work. That is a prior and no proof: it says where to look. On Who&When, whose failed runs people judged, it finds
the agent and the step more often than the language models of its paper did (benchmarks/blame.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from baton.measure.blame.state import BadState
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import in_seq_order
from baton.trace.records import Event
from baton.trace.trace import Trace

_WORK = frozenset({"message", "return", "aggregate", "tool_call"})


class Suspicion(Struct, frozen=True, kw_only=True):
    """An agent, and the act at which it may have gone wrong."""

    event: str
    agent: str
    share: float
    """Of all the work in what led to the bad state."""


def suspicions(trace: Trace, state: BadState) -> tuple[Suspicion, ...]:
    """The agents whose work led to the bad state, the most suspect first."""
    work: dict[str, int] = {}
    first: dict[str, str] = {}
    for event, size in _work(trace, state):
        work[event.agent] = work.get(event.agent, 0) + size
        first.setdefault(event.agent, event.id)
    if not work:  # nobody said anything: whoever stands at the end
        return () if state.at is None else (_at(trace, state.at),)
    whole = max(1, sum(work.values()))
    ranked = sorted(work, key=lambda agent: -work[agent])
    return tuple(Suspicion(event=first[agent], agent=agent, share=work[agent] / whole) for agent in ranked)


def _at(trace: Trace, name: str) -> Suspicion:
    return Suspicion(event=name, agent=trace.event(name).agent, share=1.0)


def _work(trace: Trace, state: BadState) -> Iterator[tuple[Event, int]]:
    """What was done on the way to the bad state; where nothing leads there, all that was done."""
    before = _led_to(trace, state)
    done = [event for event in in_seq_order(trace) if _is_work(event)]
    on_the_way = [event for event in done if event.id in before]
    for event in on_the_way or done:
        text = trace.text(event.content_ref) or ""
        failed = event.status == "failed" or text.startswith("exitcode")
        yield event, 0 if failed else max(1, len(text))


def _led_to(trace: Trace, state: BadState) -> frozenset[str]:
    if state.at is None:
        return frozenset(trace.position)
    graph = Graph.of(trace)
    return frozenset(trace.events[int(i)].id for i in graph.ancestors(trace.position[state.at])) | {state.at}


def _is_work(event: Event) -> bool:
    return event.type in _WORK and event.decision != "delegate"
