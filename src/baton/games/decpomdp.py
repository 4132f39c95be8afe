"""The dynamic Dec-POMDP: M+ = (I_t, S, A(i, r_i, h_t), A_spawn, P, Omega, r) of the survey.

The set of agents changes over time; what an agent may do depends on its role and on its own history;
to spawn and to cancel are actions of the orchestrator; everyone shares one reward, net of costs. The
classical Dec-POMDP (Bernstein et al. 2002) is the case in which nobody is spawned.

Invariant: observations go to exactly the agents alive after a step, and an agent that left never
comes back. What an agent may do follows from its own history alone, so it can always know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from msgspec import Struct

from baton.games.game import Branch, State

History = tuple[tuple[str, int], ...]
"""An agent's own (action, observation after it), oldest first; the first action is "" (it appeared)."""

LocalPolicy = Callable[[str, History], str]
"""What an agent does, from its own history alone."""


class JointOutcome(NamedTuple):
    """One thing that may happen when all act at once."""

    probability: float
    state: State
    observations: Mapping[str, int]
    """What each agent that is alive now observes."""
    reward: float = 0.0
    """Shared, before costs."""
    cost: float = 0.0


class DecPOMDP(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """A team that may grow and shrink while it acts."""

    name: ClassVar[str]
    orchestrator: ClassVar[str]
    """The agent that decides about the team; alive from start to end."""

    horizon: int = 3
    """Steps after which it is over in any case."""

    def everyone(self) -> tuple[str, ...]:
        """All agents that can ever live."""
        raise NotImplementedError

    def role(self, agent: str) -> str:
        """An agent's role."""
        raise NotImplementedError

    def alive(self, state: State) -> tuple[str, ...]:
        """I_t: who is there; nobody once it is over."""
        raise NotImplementedError

    def role_actions(self, role: str) -> tuple[str, ...]:
        """Every action a role can ever have, in a fixed order."""
        raise NotImplementedError

    def num_observations(self, role: str) -> int:
        """How many different observations a role can make."""
        raise NotImplementedError

    def actions(self, agent: str, history: History) -> tuple[str, ...]:  # noqa: ARG002 (the classical case)
        """A(i, r_i, h_t): what the agent may do now."""
        return self.role_actions(self.role(agent))

    def start(self) -> Sequence[JointOutcome]:
        """Where it begins, with first observations."""
        raise NotImplementedError

    def step(self, state: State, joint: Mapping[str, str]) -> Sequence[JointOutcome]:
        """What may follow when everyone alive acts."""
        raise NotImplementedError


# One agent's view of a dynamic Dec-POMDP, everyone else's policy fixed: exact filtering.
#
# States are the agent's own histories, as (number of its action, observation) with -1 for the first;
# behind each stands the exact belief over the world's state and everyone else's history. Against
# optimal partners the best response attains the joint optimum.

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
