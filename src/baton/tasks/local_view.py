"""One agent's view of a dynamic Dec-POMDP, everyone else's policy fixed: exact filtering.

States are the agent's own histories, as (number of its action, observation) with -1 for the first;
behind each stands the exact belief over the world's state and everyone else's history. Against
optimal partners the best response attains the joint optimum.
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
        self._named = model.role_actions(model.role(agent))
        self._number = {action: i for i, action in enumerate(self._named)}
        self._beliefs: dict[State, dict[_World, float]] = {}

    def history(self, state: State) -> History:
        """A state in the model's words."""
        return tuple((self._named[action] if action >= 0 else "", seen) for action, seen in state)

    def start(self) -> Sequence[Branch]:
        """First histories."""
        parts: dict[State, dict[_World, float]] = {}
        for probability, state, seen, _, _ in self.model.start():
            own = ((-1, seen[self.agent]),)
            rest = tuple((a, (("", o),)) for a, o in seen.items() if a != self.agent)
            worlds = parts.setdefault(own, {})
            worlds[state, rest] = worlds.get((state, rest), 0.0) + probability
        return [Branch(self._remember(own, worlds), own) for own, worlds in parts.items()]

    def options(self, state: State) -> tuple[str, ...]:
        """Actions; none once the agent is gone or the horizon is reached."""
        if not state or len(state) > self.model.horizon:
            return ()
        return self.model.actions(self.agent, self.history(state))

    def step(self, state: State, action: str) -> Sequence[Branch]:
        """Next histories, with the expected shared reward net of costs."""
        parts: dict[State, dict[_World, float]] = {}
        earned: dict[State, float] = {}
        for (world, others), weight in self._beliefs[state].items():
            joint = {a: self.others(a, h) for a, h in others} | {self.agent: action}
            before = dict(others)
            for probability, after, seen, reward, cost in self.model.step(world, joint):
                own = (*state, (self._number[action], seen[self.agent])) if self.agent in seen else ()
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

    def _remember(self, state: State, worlds: dict[_World, float]) -> float:
        total = sum(worlds.values())
        self._beliefs[state] = {world: weight / total for world, weight in worlds.items()}
        return total
