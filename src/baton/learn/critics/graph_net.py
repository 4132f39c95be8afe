"""A network over the orchestration graph: events read what they depend on, agents what those below them came to.

    h_e = events' features, then twice:  h_e <- relu(U h_e + mean over edges into e of W h_src + its type)
    s_a = m + f(m = the states of those it spawned, birth of a, its own events, its latest, how many and how deep)
    V   = a linear function of the team's state

Own events and spawned agents are added up, so neither the order of what ran side by side nor anybody's name counts.
After an event only the agents above it change; sums are kept by what changed, so all prefixes of a trace take one pass
whose cost is that of its rows (`graph_arrays`), level by level from the leaves.

`normalise` takes the mean of what is added up, which also comes through unchanged beside what f makes of it, so that a
state's scale hangs neither on the branching nor on the depth below it, and what one leaf changes reaches the team
divided by the branching on its way; without it sums are taken as they are.
Sources: message passing and tree-structured networks are textbook [M]; over traces [I].
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from baton.learn.critics.graph_arrays import NUM_FEATURES, Places, TeamGraph
from baton.trace.vocabulary import EDGE_TYPES

_ROUNDS = 2
_EVENT = 24
_STATE = 24
_HIDDEN = 48


class GraphNet(nn.Module):
    """Values of all prefixes, in units of the first returns seen."""

    shift: Tensor
    scale: Tensor

    def __init__(self, *, normalise: bool = True, seed: int = 0) -> None:
        super().__init__()
        self.normalise = normalise
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            self.enter = nn.Linear(NUM_FEATURES, _EVENT)
            self.keep = nn.ModuleList(nn.Linear(_EVENT, _EVENT) for _ in range(_ROUNDS))
            self.pass_on = nn.ModuleList(nn.Linear(_EVENT, _EVENT, bias=False) for _ in range(_ROUNDS))
            self.edge = nn.ModuleList(nn.Embedding(len(EDGE_TYPES), _EVENT) for _ in range(_ROUNDS))
            self.into = nn.Linear(3 * _EVENT + _STATE + 3, _HIDDEN)
            self.state = nn.Linear(_HIDDEN, _STATE)
            self.head = nn.Linear(_STATE, 1)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, graph: TeamGraph) -> Tensor:
        """V of every prefix, in units of `scale` about `shift`."""
        h = self._events(graph)
        blank = h.new_zeros(1, _EVENT)
        own = torch.cat((h, blank))  # -1 names the blank
        latest = torch.cat((self._replaced(graph, h), blank))
        team = h.new_zeros(len(graph.values), _STATE)
        slot = np.full(len(graph.event), -1)
        slot[graph.values] = np.arange(len(graph.values))
        changes = h.new_zeros(len(graph.event), _STATE)
        counts = torch.from_numpy(graph.counts).to(h.dtype)
        for level in range(int(graph.level.max()) + 1):
            at_row = _sorted_rows(graph, level)
            at = torch.from_numpy(at_row)
            acted = torch.from_numpy(graph.own[at_row])
            starts = _starts(graph.node[at_row])
            sums = _running(torch.cat((own[acted], latest[acted], changes[at]), -1), starts)
            mine, frontier, below = sums[:, :_EVENT], sums[:, _EVENT : 2 * _EVENT], sums[:, 2 * _EVENT :]
            num = counts[at]
            if self.normalise:
                mine, below = mine / num[:, :1].clamp(min=1), below / num[:, 1:2].clamp(min=1)
            born = own[torch.from_numpy(graph.born[at_row])]
            read = torch.cat((born, mine, frontier, below, torch.log1p(num)), -1)
            found = below + self.state(torch.relu(self.into(read)))
            top = np.flatnonzero(slot[at_row] >= 0)
            team = team.index_copy(0, torch.from_numpy(slot[at_row[top]]), found[torch.from_numpy(top)])
            changes = self._told(graph, at_row, found, starts, changes)
        values: Tensor = self.head(team)[:, 0]
        return values

    def values(self, graph: TeamGraph) -> Tensor:
        """The same in units of the return."""
        return self.forward(graph) * self.scale + self.shift

    def _events(self, graph: TeamGraph) -> Tensor:
        h = torch.relu(self.enter(torch.from_numpy(graph.x).to(self.enter.weight.dtype)))
        src, dst = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
        kinds = torch.from_numpy(graph.edge_type)
        many = torch.bincount(dst, minlength=len(h)).clamp(min=1)[:, None]
        for keep, pass_on, edge in zip(self.keep, self.pass_on, self.edge, strict=True):
            heard = torch.zeros_like(h).index_add(0, dst, pass_on(h)[src] + edge(kinds))
            h = torch.relu(keep(h) + heard / many)
        return h

    @staticmethod
    def _replaced(graph: TeamGraph, h: Tensor) -> Tensor:
        """What an event adds to its agent's latest ones, less those that it follows."""
        gone = h[torch.from_numpy(graph.left)]
        return h.index_add(0, torch.from_numpy(graph.left_at), -gone)

    @staticmethod
    def _told(graph: TeamGraph, at_row: Places, found: Tensor, starts: Places, changes: Tensor) -> Tensor:
        """How far each row moved its agent's state, told to the row above."""
        before = torch.cat((found.new_zeros(1, found.shape[1]), found[:-1]))
        first = np.zeros(len(at_row), bool)
        first[starts] = True
        moved = torch.where(torch.from_numpy(first)[:, None], found, found - before)
        above = graph.parent_row[at_row]
        there = np.flatnonzero(above >= 0)
        return changes.index_copy(0, torch.from_numpy(above[there]), moved[torch.from_numpy(there)])


def _sorted_rows(graph: TeamGraph, level: int) -> Places:
    """The rows of a level, each agent's together and in order."""
    at = np.flatnonzero(graph.level == level)
    found: Places = at[np.argsort(graph.node[at], kind="stable")]
    return found


def _starts(node: Places) -> Places:
    return np.flatnonzero(np.r_[True, node[1:] != node[:-1]])


def _running(each: Tensor, starts: Places) -> Tensor:
    """Sums up to and including every row of its agent; in double precision, as they go over all agents of a level."""
    total = each.double().cumsum(0)
    sizes = np.diff(np.r_[starts, len(each)])
    before = torch.cat((total.new_zeros(1, each.shape[1]), total))[torch.from_numpy(starts)]
    return (total - before.repeat_interleave(torch.from_numpy(sizes), 0)).to(each.dtype)
