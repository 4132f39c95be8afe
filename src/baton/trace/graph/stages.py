"""Stages: the leading agent's timeline, cut where it has heard back and sends out again.

A new stage begins at the root's first spawn or delegation after it has received a return or
aggregated. The root's events belong to the stage they fall in. A sub-agent's events belong to the
stage in which the root last spawned, or delegated to, the agent at the top of its branch (the child
of the root it descends from). A tool's result goes with the agent it names in `to`. Whoever stands
under no spawn or delegation of the root (other roots and their branches) goes with the root's clock.

A step is one call of an agent; an event that names no call is a step of its own, except results
of tools and the despawns with which a run ends, which are nobody's step. Critical steps, as in
PARL (Kimi K2.5): the sum over stages of the root's steps plus the most steps any one sub-agent
took. A call belongs to the stage of its first event.
"""

from __future__ import annotations

from collections import Counter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from baton.trace.graph.lineage import NO_EFFECT, Lineage
from baton.trace.records import Event
from baton.trace.trace import Trace


class Stages:
    """Which stage each event belongs to, and the steps taken in each."""

    def __init__(
        self, root: str | None, of_event: NDArray[np.int32], steps: tuple[Counter[str], ...]
    ) -> None:
        self.root = root
        self.of_event = of_event
        """By index into `trace.events`."""
        self.steps = steps
        """For each stage, the steps of every agent that took any."""

    @classmethod
    def of(cls, trace: Trace, lineage: Lineage | None = None) -> Self:
        """A trace without agents has no stages."""
        lineage = Lineage.of(trace) if lineage is None else lineage
        root, top = lineage.root, lineage.top
        of_event = np.zeros(len(trace.events), np.int32)
        if root is None:
            return cls(None, of_event, ())
        steps = [Counter[str]()]
        sent_in: dict[str, int] = {}  # agent the root spawned or delegated to -> stage
        heard_back = False
        calls: set[str] = set()
        for index in sorted(range(len(trace.events)), key=lambda i: trace.events[i].seq):
            event = trace.events[index]
            agent = event.agent
            if agent == root:
                if _sends_out(event):
                    if heard_back:
                        steps.append(Counter())
                        heard_back = False
                    if event.to is not None:
                        sent_in[event.to] = len(steps) - 1
                heard_back |= event.type == "aggregate"
                stage = len(steps) - 1
            else:
                who = agent if agent in lineage else event.to  # a tool's result is for whom it goes to
                stage = sent_in.get(top.get(who or agent, agent), len(steps) - 1)
                heard_back |= event.type == "return" and _receiver(event, lineage) == root
            of_event[index] = stage
            if not _nobodys(event) and agent in lineage:
                if event.call is None:
                    steps[stage][agent] += 1
                elif event.call not in calls:
                    calls.add(event.call)
                    steps[stage][agent] += 1
        return cls(root, of_event, tuple(steps))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def critical_steps(self) -> int:
        total = 0
        for taken in self.steps:
            others = [count for agent, count in taken.items() if agent != self.root]
            total += max(others, default=0) + taken.total() - sum(others)
        return total

    @property
    def total_steps(self) -> int:
        return sum(taken.total() for taken in self.steps)


def _nobodys(event: Event) -> bool:
    """What a tool answered, and an agent's leaving that nobody decided: a hundred agents leave as fast as one."""
    return event.type == "tool_result" or (
        event.type == "despawn" and event.call is None and event.decision == "none"
    )


def _sends_out(event: Event) -> bool:
    return (event.type == "spawn" or event.decision == "delegate") and event.status not in NO_EFFECT


def _receiver(event: Event, lineage: Lineage) -> str | None:
    """A return goes to whom it names, else to the parent."""
    if event.to is not None or event.agent not in lineage:
        return event.to
    return lineage[event.agent].parent
