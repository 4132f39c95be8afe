"""Who stands by in a fork: agents that are not run again, and what of the recorded run is copied for them.

Bystanders are whole branches of the spawn tree: an agent that is run is run with all above it. The part of a block that
bystanders opened is copied up to where an agent that is run acts in it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from operator import itemgetter

import numpy as np

from baton.team.blocks import Blocks, Flags, Indices


class Plan:
    """Which blocks of a recorded run are copied when some agents are run, and where the two meet."""

    def __init__(self, blocks: Blocks, run: Iterable[int]) -> None:
        self.blocks = blocks
        self.run: Flags = np.zeros(len(blocks.agents), dtype=bool)
        self.run[0] = True  # the root
        for agent in (*run, *blocks.entangled):
            self._add(agent)
        ends = self._settled()
        self.end: list[int] = ends.tolist()
        """Block -> where the part of it ends that is copied."""
        self.unit = self._units()
        """Agent -> the branch it belongs to, by the agent on top; -1: it is run."""
        mine = ~self.run[blocks.opener]
        self.copied: list[int] = np.flatnonzero(mine).tolist()
        """The blocks that are copied, in order."""
        index, place = np.arange(blocks.n), blocks.block_of
        self.inside: Flags = ~self.run[blocks.agent_of] & (index < ends[place]) & mine[place]
        """The events that are copied."""
        told = self.inside & blocks.told
        run_to, unit_to = self.run[blocks.to], self.unit[blocks.to]
        self.told_run = _by_block(place, np.flatnonzero(told & run_to))
        """Block -> what it says to agents that are run."""
        self.told: list[int] = np.flatnonzero(told & run_to).tolist()
        """The same, in order."""
        apart = told & ~run_to & (unit_to != self.unit[blocks.agent_of])
        self.told_apart = _by_block(place, np.flatnonzero(apart))
        """Block -> what it says to bystanders of other branches."""
        src, dst = blocks.src, blocks.dst
        said = ~self.inside & (blocks.told | blocks.spawns) & (unit_to >= 0)
        self.said_to = _by_block(blocks.to, np.flatnonzero(said))
        """Bystander -> what agents that are run said to it."""
        self.needs = self._needs()
        """Block -> what it depends on of what is not copied: the event, and whose acts depend on it."""
        across = self.unit[blocks.agent_of[src]] != self.unit[blocks.agent_of[dst]]
        self.leads_to = _by_block(place[src], np.flatnonzero(self.inside[src] & self.inside[dst] & across))
        """Block -> edges from it to other branches."""
        self.joint = self._joint()
        """Blocks in which several branches act."""
        invalid = set(place[self.inside & blocks.invalid].tolist())
        self.met = {*self.told_run, *self.told_apart, *self.joint, *invalid}
        """Blocks that have to do with somebody besides their own branch, then and there."""
        self.told_only: set[int] = {
            block
            for block, events in self.told_run.items()
            if not blocks.returns[events].any()
            and not (block in self.told_apart or block in self.joint or block in invalid)
        }
        """Of these, blocks that only send messages to agents that are run."""
        self.times: list[float] = [blocks.t[block] for block in self.copied]
        self.whole: set[int] = set(np.flatnonzero(mine & (ends == blocks.start[1:])).tolist())
        """Blocks that are copied from beginning to end."""
        self.block_unit: list[int] = self.unit[blocks.opener].tolist()
        self.members = _by_block(self.unit[:-1], np.flatnonzero(self.unit[:-1] >= 0))
        """Branch -> who is in it."""
        self._by_unit: dict[int, list[int]] | None = None

    @property
    def share(self) -> float:
        """How much of the recorded run is copied."""
        return float(self.inside.mean())

    def events_of(self, unit: int) -> list[int]:
        """The events of a branch that are copied, in order."""
        if self._by_unit is None:
            units = self.unit[self.blocks.agent_of]
            self._by_unit = _by_block(units, np.flatnonzero(self.inside))
        return self._by_unit.get(unit, [])

    def _add(self, agent: int) -> None:
        while agent >= 0 and not self.run[agent]:
            self.run[agent] = True
            agent = int(self.blocks.parent[agent])

    def _settled(self) -> Indices:
        """Run also those who act in a block after, or because of, an agent that is run; where copies then end."""
        blocks = self.blocks
        index, place = np.arange(blocks.n), blocks.block_of
        while True:
            is_run = self.run[blocks.agent_of]
            first = np.minimum.reduceat(np.where(is_run, index, blocks.n), blocks.start[:-1])
            after = (index > first[place]) | self.run[blocks.opener][place]
            late = np.unique(blocks.agent_of[~is_run & ~blocks.by_kill & after])
            if not len(late):
                return np.minimum(first, blocks.start[1:])
            for agent in late.tolist():
                self._add(agent)

    def _units(self) -> Indices:
        unit = np.full(len(self.run) + 1, -1)  # one more: what an index of -1 finds
        for agent in np.argsort(
            self.blocks.spawned, kind="stable"
        ).tolist():  # spawners before those they spawn
            if not self.run[agent]:
                parent = int(self.blocks.parent[agent])
                unit[agent] = agent if self.run[parent] else unit[parent]
        return unit

    def _needs(self) -> dict[int, list[tuple[int, int]]]:
        """By edges; and what was said to an agent before it acted, whether or not it had read it.

        What has come about as it was stays so, hence a branch looks at each thing once.
        """
        blocks = self.blocks
        edges = np.flatnonzero(~self.inside[blocks.src] & self.inside[blocks.dst])
        dst = blocks.dst[edges]
        who = blocks.agent_of[dst]
        needs = zip(blocks.src[edges].tolist(), dst.tolist(), who.tolist(), strict=True)
        pairs = [(event, agent, at) for event, at, agent in needs]
        for agent, events in self.said_to.items():
            told = [event for event in events if not blocks.spawns[event]]
            mine = [event for event in blocks.events_of[agent] if self.inside[event]] if told else []
            pairs += [(event, agent, mine[k]) for event in told if (k := bisect(mine, event)) < len(mine)]
        pairs.sort(key=itemgetter(2))
        unit, place = self.unit.tolist(), blocks.block_of.tolist()
        found: dict[int, list[tuple[int, int]]] = {}
        seen: set[tuple[int, int]] = set()
        for event, agent, at in pairs:
            if (event, unit[agent]) not in seen:
                seen.add((event, unit[agent]))
                found.setdefault(place[at], []).append((event, agent))
        return found

    def _joint(self) -> set[int]:
        start = self.blocks.start[:-1]
        unit = self.unit[self.blocks.agent_of]
        high = np.maximum.reduceat(np.where(self.inside, unit, -1), start)
        low = np.minimum.reduceat(np.where(self.inside, unit, len(unit)), start)
        return set(np.flatnonzero((high >= 0) & (low != high)).tolist())


def _by_block(keys: Indices, chosen: Indices) -> dict[int, list[int]]:
    """The chosen ones by their keys."""
    found: dict[int, list[int]] = {}
    for key, value in zip(keys[chosen].tolist(), chosen.tolist(), strict=True):
        found.setdefault(key, []).append(value)
    return found
