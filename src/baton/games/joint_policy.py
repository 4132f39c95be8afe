"""The best joint policy of a two-agent classical Dec-POMDP, exactly.

Every deterministic policy of one agent is enumerated (all at once, as an array dimension) and the
other's best response to each is found by backward induction over its own observations. Some
deterministic pair is optimal, so the best of these is the optimum; no pair is left out.
Dimension letters: P policies of the first agent, S states, H observation histories of the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from baton.errors import UsageError
from baton.games.decpomdp import DecPOMDP, History, LocalPolicy
from baton.games.game import State

MAX_POLICIES = 200_000
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class JointOptimum:
    """The value and one optimal pair of policies."""

    def __init__(self, value: float, tables: dict[str, dict[tuple[int, ...], str]]) -> None:
        self.value = value
        self.tables = tables
        """Agent -> its observations so far -> its action."""

    @property
    def policy(self) -> LocalPolicy:
        def act(agent: str, history: History) -> str:
            return self.tables[agent][tuple(observation for _, observation in history[1:])]

        return act


class _Tables:
    """The model as arrays, over states reachable from the start."""

    def __init__(self, model: DecPOMDP) -> None:
        agents = model.everyone()
        if len(agents) != 2:
            raise UsageError(
                f"{model.name}: the joint solver takes 2 agents and no spawns; this has {len(agents)}."
            )
        self.agents = agents
        self.acts = [model.role_actions(model.role(agent)) for agent in agents]
        self.num_observations = [model.num_observations(model.role(agent)) for agent in agents]
        index: dict[State, int] = {}
        entries = []
        todo = [outcome.state for outcome in model.start()]
        for state in todo:
            if state in index:
                continue
            index[state] = len(index)
            for a, first in enumerate(self.acts[0]):
                for b, second in enumerate(self.acts[1]):
                    for out in model.step(state, dict(zip(agents, (first, second), strict=True))):
                        entries.append((index[state], a, b, out))
                        todo.append(out.state)
        shape = (len(index), len(self.acts[0]), len(self.acts[1]))
        self.rewards: Floats = np.zeros(shape)
        # [first's action, second's action, state, state after, first sees, second sees]
        self.moves: Floats = np.zeros((*shape[1:], shape[0], shape[0], *self.num_observations))
        for s, a, b, out in entries:
            self.rewards[s, a, b] += out.probability * (out.reward - out.cost)
            seen = tuple(out.observations[agent] for agent in agents)
            self.moves[(a, b, s, index[out.state], *seen)] += out.probability
        self.first: Floats = np.zeros(shape[0])
        for out in model.start():
            self.first[index[out.state]] += out.probability


def joint_optimum(model: DecPOMDP, horizon: int) -> JointOptimum:
    """The best deterministic pair over a horizon."""
    if horizon < 1:
        raise UsageError(f"{model.name}: horizon = {horizon} is not possible; it must be at least 1.")
    tables = _Tables(model)
    seen = tables.num_observations[0]
    nodes = sum(seen**t for t in range(horizon))
    num_policies = len(tables.acts[0]) ** nodes
    if num_policies > MAX_POLICIES:
        raise UsageError(
            f"{model.name}: horizon {horizon} has {num_policies:.3g} policies per agent; the exact joint "
            f"solver takes at most {MAX_POLICIES:,}. Type: --set horizon={horizon - 1}"
        )
    grid: Ints = np.stack(np.unravel_index(np.arange(num_policies), (len(tables.acts[0]),) * nodes), axis=1)
    weights = np.broadcast_to(tables.first[None, :, None], (num_policies, len(tables.first), 1))
    values = _respond(tables, grid, weights, horizon, 0, (), None)
    best = int(np.argmax(values))
    table: dict[tuple[int, ...], str] = {}
    _respond(tables, grid[best : best + 1], weights[:1], horizon, 0, (), table)
    first = {
        history: tables.acts[0][grid[best, _node(history, seen)]]
        for t in range(horizon)
        for history in np.ndindex(*(seen,) * t)
    }
    return JointOptimum(float(values[best]), dict(zip(tables.agents, (first, table), strict=True)))


def _node(history: tuple[int, ...], seen: int) -> int:
    """Where a history of the first agent stands in a policy's row."""
    offset = sum(int(seen**t) for t in range(len(history)))
    within = 0
    for observation in history:
        within = within * seen + observation
    return offset + within


def _respond(
    tables: _Tables,
    grid_P: Ints,
    weights_PSH: Floats,
    horizon: int,
    t: int,
    history: tuple[int, ...],
    table: dict[tuple[int, ...], str] | None,
) -> Floats:
    """Value of the second agent's best response to each policy, from its history on.

    With one policy only, `table` takes down what the response is.
    """
    num_P, num_S, num_H = weights_PSH.shape
    start = _node((0,) * t, tables.num_observations[0])
    acts_PH = grid_P[:, start : start + num_H]
    options: list[Floats] = []
    found: list[dict[tuple[int, ...], str]] = []
    for b in range(len(tables.acts[1])):
        value_P = np.einsum("psh,phs->p", weights_PSH, tables.rewards[:, :, b].T[acts_PH])
        below: dict[tuple[int, ...], str] = {}
        if t + 1 < horizon:
            moves_PHSSOO = tables.moves[:, b][acts_PH]
            after = np.einsum("psh,phsnax->pnhax", weights_PSH, moves_PHSSOO)
            for x in range(tables.num_observations[1]):
                next_PSH = after[..., x].reshape(num_P, num_S, -1)
                rest = None if table is None else below
                value_P = value_P + _respond(tables, grid_P, next_PSH, horizon, t + 1, (*history, x), rest)
        options.append(value_P)
        found.append(below)
    stacked = np.stack(options)
    if table is not None:
        chosen = int(np.argmax(stacked[:, 0]))
        table[history] = tables.acts[1][chosen]
        table.update(found[chosen])
    best: Floats = stacked.max(axis=0)
    return best
