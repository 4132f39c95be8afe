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

from baton.tasks.game import State

__all__ = ["DecPOMDP", "History", "LocalPolicy", "Outcome"]

History = tuple[tuple[str, int], ...]
"""An agent's own (action, observation after it), oldest first; the first action is "" (it appeared)."""

LocalPolicy = Callable[[str, History], str]
"""What an agent does, from its own history alone."""


class Outcome(NamedTuple):
    """One thing that may happen when all act at once."""

    probability: float
    state: State
    observations: Mapping[str, int]
    """Of each agent alive now."""
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

    def start(self) -> Sequence[Outcome]:
        """Where it begins, with first observations."""
        raise NotImplementedError

    def step(self, state: State, joint: Mapping[str, str]) -> Sequence[Outcome]:
        """What may follow when everyone alive acts."""
        raise NotImplementedError
