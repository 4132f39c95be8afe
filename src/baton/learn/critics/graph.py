"""A critic that sees the graph: one network for teams of any shape (`graph_net`), fitted to returns.

It is asked for V(prefix) by `telescope` and `partition`; a shape that it never saw is valued without training anew.
Trained by regression of the team's return on every prefix of the last steps' traces, each trace counting once however
long it is. As with the network that reads, traces are judged before they are learned from. `[critic] settings`:
`normalise = false` leaves out what `graph_net` divides by.
Source: asked for by the survey (arXiv 2605.02801, 3.3); ours [I].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from baton.credit.estimator import Prefix, RewardOf
from baton.errors import UsageError, nearest
from baton.learn.critics.graph_arrays import TeamGraph
from baton.learn.critics.graph_net import GraphNet
from baton.learn.recipe import CriticPart, Recipe
from baton.trace.records import ROUNDING
from baton.trace.trace import Trace

_KEPT = 1024
"""Traces that it is fitted to: the latest, and no more than `_KEPT_ROWS` of them."""
_KEPT_ROWS = 2_000_000
_ROWS = 4096
"""Rows of one step of the regression, about."""


class _Lesson(NamedTuple):
    graph: TeamGraph
    value: float


class GraphCritic:
    """Values of prefixes by message passing over the trace's graph."""

    def __init__(self, recipe: Recipe, _policies: Mapping[str, Any], reward: RewardOf) -> None:
        self.part = recipe.critic or CriticPart()
        self.reward = reward
        self.seed = recipe.train.seed
        self.net = GraphNet(normalise=_normalise(self.part.settings), seed=self.seed)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=self.part.learning_rate)
        self._num_observed = 0
        self._kept: list[_Lesson] = []
        self._known: dict[int, tuple[Trace, NDArray[np.float64]]] = {}
        """By the identity of a trace's events: it gets its credits afterwards."""

    def observe(self, traces: Iterable[Trace]) -> None:
        """Judge a step's traces with what is known, then learn from them."""
        said = list(traces)
        lessons = [_Lesson(TeamGraph.of(trace), float(self.reward(trace))) for trace in said]
        if not lessons:
            return
        if not self._num_observed:
            self._fit_scale(np.array([each.value for each in lessons]))
        self._known = {}
        for trace, values in zip(said, self._values([each.graph for each in lessons]), strict=True):
            self._known[id(trace.events)] = (trace, values)
        self._kept = _latest([*self._kept, *lessons])
        self._learn()
        self._num_observed += 1

    def value(self, prefix: Prefix) -> float:
        """The return that is expected after a prefix."""
        if prefix.agent is not None:
            raise UsageError(
                'a local value was asked of the critic "graph", which sees the whole team. Take kind = "network" with '
                'view = "local", or take critic = "local" out of the estimator\'s settings.'
            )
        trace = prefix.trace
        if id(trace.events) not in self._known:
            self._known[id(trace.events)] = (trace, self._values([TeamGraph.of(trace)])[0])
        return float(self._known[id(trace.events)][1][prefix.num_events])

    def given(self) -> dict[str, Callable[..., Any]]:
        """Values of prefixes."""
        return {"value": self.value}

    @torch.no_grad()
    def _values(self, graphs: Sequence[TeamGraph]) -> list[NDArray[np.float64]]:
        found: list[NDArray[np.float64]] = []
        batch: list[TeamGraph] = []
        for number, graph in enumerate(graphs, 1):
            batch.append(graph)
            if number == len(graphs) or sum(len(each.event) for each in batch) >= _ROWS:
                values = self.net.values(TeamGraph.together(batch)).double().numpy()
                found += np.split(values, np.cumsum([len(each.values) for each in batch])[:-1])
                batch = []
        return found

    def _fit_scale(self, returns: NDArray[np.float64]) -> None:
        spread = float(returns.std())
        self.net.shift.fill_(float(returns.mean()))
        self.net.scale.fill_(spread if spread > ROUNDING * float(np.abs(returns).max()) else 1.0)

    def _learn(self) -> None:
        random = np.random.default_rng((self.seed, self._num_observed))
        order: list[int] = []
        for _ in range(self.part.steps):
            batch: list[_Lesson] = []
            rows = 0
            while rows < _ROWS and len(batch) < len(self._kept):
                if not order:
                    order = random.permutation(len(self._kept)).tolist()
                batch.append(self._kept[order.pop()])
                rows += len(batch[-1].graph.event)
            self._regress(batch)

    def _regress(self, batch: Sequence[_Lesson]) -> None:
        """One step towards the returns; every trace weighs the same."""
        sizes = np.array([len(each.graph.values) for each in batch])
        targets = torch.tensor(np.repeat([each.value for each in batch], sizes), dtype=torch.float32)
        weight = torch.tensor(np.repeat(1 / sizes, sizes) / len(batch), dtype=torch.float32)
        self.optimizer.zero_grad()
        off = self.net(TeamGraph.together([each.graph for each in batch]))
        loss = (weight * (off - (targets - self.net.shift) / self.net.scale) ** 2).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """The network, its optimiser, and what it is fitted to."""
        optimizer = self.optimizer.state_dict()["state"]
        return {
            "num_observed": self._num_observed,
            "net": {name: value.clone() for name, value in self.net.state_dict().items()},
            "optimizer": {str(k): {n: v.clone() for n, v in each.items()} for k, each in optimizer.items()},
            "returns": [each.value for each in self._kept],
            "graphs": [
                {name: torch.from_numpy(value.copy()) for name, value in each.graph._asdict().items()}
                for each in self._kept
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._num_observed = state["num_observed"]
        self.net.load_state_dict(state["net"])
        whole = self.optimizer.state_dict()
        whole["state"] = {int(key): each for key, each in state["optimizer"].items()}
        self.optimizer.load_state_dict(whole)
        graphs = [TeamGraph(**{n: v.numpy().copy() for n, v in each.items()}) for each in state["graphs"]]
        self._kept = [_Lesson(g, v) for g, v in zip(graphs, state["returns"], strict=True)]


def _latest(lessons: list[_Lesson]) -> list[_Lesson]:
    found = lessons[-_KEPT:]
    rows = np.cumsum([len(each.graph.event) for each in reversed(found)])
    return found[-max(1, int(np.searchsorted(rows, _KEPT_ROWS, side="right"))) :]


def _normalise(settings: Mapping[str, Any]) -> bool:
    for name in settings:
        if name != "normalise":
            raise UsageError(f'critic "graph" has no setting {name!r}. {nearest(name, ("normalise",))}')
    found = settings.get("normalise", True)
    if not isinstance(found, bool):
        raise UsageError(f"critic.settings.normalise is {found!r}; expected true or false.")
    return found
