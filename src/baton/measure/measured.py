"""A trace being measured: its graph, lineage, stages and answer, each worked out once.

Invariant: everything is by `seq` and by edges, never by place in a file. What the trace does not hold is
a `TraceError` that says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Literal

from baton.errors import TraceError
from baton.measure.figure import NotMeasured
from baton.measure.meaning import Meaning
from baton.trace.acts import ancestors_of
from baton.trace.gold import Gold, verifier
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import Lineage, in_seq_order
from baton.trace.graph.stages import Stages
from baton.trace.graph.timing import Concurrency
from baton.trace.outcome import final_event, task_score
from baton.trace.records import Event
from baton.trace.trace import Trace

CostKind = Literal["tokens", "seconds"]


class MeasuredTrace:
    """One trace and what is known of its instance."""

    def __init__(self, trace: Trace, gold: Gold | None = None, meaning: Meaning | None = None) -> None:
        self.trace = trace
        self.gold = Gold() if gold is None else gold
        self.meaning = Meaning() if meaning is None else meaning
        """How texts are compared where the same may be said in other words."""

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """In `seq` order."""
        return tuple(in_seq_order(self.trace))

    @cached_property
    def graph(self) -> Graph:
        return Graph.of(self.trace)

    @cached_property
    def lineage(self) -> Lineage:
        return Lineage.of(self.trace)

    @cached_property
    def stages(self) -> Stages:
        return Stages.of(self.trace, self.lineage)

    @cached_property
    def busy(self) -> Concurrency:
        return Concurrency.of(self.trace, self.lineage)

    @cached_property
    def final(self) -> Event:
        """The event that gave the team's answer."""
        found = final_event(self.trace)
        if found is None:
            raise NotMeasured("the trace has no answer: no stop and no aggregate of the leading agent")
        return found

    @cached_property
    def answer(self) -> str:
        """What the team answered."""
        if self.final.content_ref is None:
            return ""
        return self.said(self.final)

    @cached_property
    def used(self) -> frozenset[str]:
        """Ids of the events that the answer depends on, itself included."""
        return ancestors_of(self.trace, self.graph, self.final)

    @cached_property
    def outcome(self) -> float:
        """The team's score: verified now, else as recorded, else the metric `task_success`."""
        if self.gold.can_verify and self._can_read_answer:
            return self.verified(self.answer)
        found = task_score(self.trace)
        if found is not None:
            return found[0]
        if not self.trace.finished:
            raise NotMeasured("the trace is unfinished")
        raise NotMeasured(
            "no verified outcome: no verifier is given, no shared team reward is recorded, no metric task_success"
        )

    @property
    def _can_read_answer(self) -> bool:
        try:
            return self.answer is not None
        except TraceError:  # none was given, or its text was withheld
            return False

    @property
    def succeeded(self) -> bool:
        """Verified success: the full score."""
        return self.outcome >= 1.0

    def said(self, event: Event) -> str:
        text = self.trace.text(event.content_ref)
        if text is None:
            why = "has no content" if event.content_ref is None else "has content that is not in the trace"
            raise NotMeasured(f"the text of a {event.type} is needed, and it {why}")
        return text

    @cached_property
    def tokens(self) -> float:
        stated = self.trace.costs.get("tokens")
        return self.cost(self.trace.events, "tokens") if stated is None else stated

    @cached_property
    def seconds(self) -> float:
        """Makespan: the clock's own figure, else until the end of what ended last."""
        stated = self.trace.costs.get("wall_clock_s")
        if stated is not None:
            return stated
        ends = [event.t + event.duration_s for event in self.trace.events if event.duration_s is not None]
        if not ends:
            raise NotMeasured("no event was timed")
        return max(ends)

    @cached_property
    def work_s(self) -> float:
        # fsum: the order of events in a file must not show in the last digit.
        return self.cost(self.trace.events, "seconds")

    @cached_property
    def num_calls(self) -> int:
        if not self.trace.calls:
            raise NotMeasured("no LLM call is recorded")
        return len(self.trace.calls)

    def cost(self, events: Iterable[Event], kind: CostKind) -> float:
        """What these events cost together."""
        if not self._measures(kind):
            raise NotMeasured("no event's tokens were counted" if kind == "tokens" else "no event was timed")
        try:
            return math.fsum((e.tokens if kind == "tokens" else e.duration_s) or 0.0 for e in events)
        except OverflowError:
            raise NotMeasured(f"the {kind} of its events are too large to add up") from None

    def share(self, events: Iterable[Event], kind: CostKind) -> float:
        """Their cost over that of all."""
        whole = self.cost(self.trace.events, kind)
        if whole <= 0:
            raise NotMeasured(f"the trace cost no {kind} at all")
        return min(1.0, self.cost(events, kind) / whole)

    def _measures(self, kind: CostKind) -> bool:
        values = (e.tokens if kind == "tokens" else e.duration_s for e in self.trace.events)
        return any(value is not None for value in values)

    def verified(self, text: str) -> float:
        """Score of a text as an answer."""
        if not self.gold.can_verify:
            raise NotMeasured("no verifier is given")
        return float(verifier(self.gold, "this")(text))
