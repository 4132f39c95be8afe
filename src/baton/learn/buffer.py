"""The replay buffer: groups of traces of any shape, with the weights that made them, and batches of like size.

A group is what its credits were compared within, so it is kept whole. What was sampled by weights older than the
staleness bound goes; what is older than the weights being trained is corrected for by the loss (importance weights).
Rollouts that a budget cut off are kept and weighted, never dropped silently: dropping the long ones would teach the
team that long work does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from baton.forest.rows import Row
from baton.trace.trace import Trace


class Group(Struct, frozen=True, kw_only=True):
    """Rollouts of one instance."""

    step: int
    version: int
    """Of the weights that sampled them."""
    traces: tuple[Trace, ...]


class Buffer:
    """The groups of the last steps."""

    def __init__(self, staleness: int) -> None:
        self.staleness = staleness
        self.groups: list[Group] = []

    def add(self, groups: Sequence[Group], version: int) -> list[Group]:
        """Keep these; forget what is too old for weights of this version. Returns what was forgotten."""
        self.groups += groups
        gone = [group for group in self.groups if version - group.version > self.staleness]
        self.groups = [group for group in self.groups if version - group.version <= self.staleness]
        return gone

    def again(self, num_groups: int, before: int) -> list[Group]:
        """The newest groups of steps before this one."""
        earlier = [group for group in self.groups if group.step < before]
        return earlier[-num_groups:] if num_groups else []


def cut_off(trace: Trace) -> bool:
    """Whether a budget, and not the team, ended it."""
    return any(event.status == "forced" and event.decision == "stop" for event in trace.events)


def batches_of(rows: Sequence[Row], count: int) -> list[list[Row]]:
    """Rows in `count` batches of nearly equal trained tokens; rows of one group stay together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    sizes = {name: sum(len(row.places) for row in each) for name, each in groups.items()}
    batches: list[list[Row]] = [[] for _ in range(max(1, min(count, len(groups))))]
    filled = [0] * len(batches)
    for name in sorted(groups, key=lambda name: (-sizes[name], name)):
        at = filled.index(min(filled))
        batches[at] += groups[name]
        filled[at] += sizes[name]
    return batches
