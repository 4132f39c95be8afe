"""One agent's view of a dynamic Dec-POMDP, everyone else's policy fixed: exact filtering.

States are the agent's own histories; behind each stands the exact belief over the world's state and
everyone else's history. Against optimal partners the best response attains the joint optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

from baton.tasks.decpomdp import DecPOMDP, History, LocalPolicy
from baton.tasks.game import Branch, State

__all__ = ["LocalView"]

_World = tuple[State, tuple[tuple[str, History], ...]]
"""The world's state and the histories of the others alive."""


class LocalView:
    """The decision problem of one agent."""

    def __init__(self, model: DecPOMDP, agent: str, others: LocalPolicy) -> None:
        self.model = model
        self.agent = agent
        self.others = others
        self._beliefs: dict[History, dict[_World, float]] = {}

    def start(self) -> Sequence[Branch]:
        """First histories."""
        parts: dict[History, dict[_World, float]] = {}
        for probability, state, seen, _, _ in self.model.start():
            own: History = (("", seen[self.agent]),)
            rest = tuple((a, (("", o),)) for a, o in seen.items() if a != self.agent)
            worlds = parts.setdefault(own, {})
            worlds[state, rest] = worlds.get((state, rest), 0.0) + probability
        return [Branch(self._remember(own, worlds), own) for own, worlds in parts.items()]

    def options(self, history: History) -> tuple[str, ...]:
        """Actions; none once the agent is gone or the horizon is reached."""
        if not history or len(history) > self.model.horizon:
            return ()
        return self.model.actions(self.agent, history)

    def step(self, history: History, action: str) -> Sequence[Branch]:
        """Next histories, with the expected shared reward net of costs."""
        parts: dict[History, dict[_World, float]] = {}
        earned: dict[History, float] = {}
        for (state, others), weight in self._beliefs[history].items():
            joint = {a: self.others(a, h) for a, h in others} | {self.agent: action}
            before = dict(others)
            for probability, after, seen, reward, cost in self.model.step(state, joint):
                own = (*history, (action, seen[self.agent])) if self.agent in seen else ()
                rest = tuple(
                    (a, (*before[a], (joint[a], o)) if a in before else (("", o),))
                    for a, o in seen.items()
                    if a != self.agent
                )
                mass = weight * probability
                worlds = parts.setdefault(own, {})
                worlds[after, rest] = worlds.get((after, rest), 0.0) + mass
                earned[own] = earned.get(own, 0.0) + mass * (reward - cost)
        branches = []
        for own, worlds in parts.items():
            total = self._remember(own, worlds)
            branches.append(Branch(total, own, earned[own] / total))
        return branches

    def _remember(self, history: History, worlds: dict[_World, float]) -> float:
        total = sum(worlds.values())
        self._beliefs[history] = {world: weight / total for world, weight in worlds.items()}
        return total
