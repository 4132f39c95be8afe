"""How many agents to spawn at once, with nothing to learn in between: the shape of several O1 games.

A state is (agents so far,); each choice is one more or go. So the best width is found one agent at a
time, which is exact because spawning tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State


class Width(Game, frozen=True, kw_only=True):
    """Choose a number of agents, then let them work."""

    decisions: ClassVar[tuple[Choice, ...]] = ("spawn",)
    roles: ClassVar[tuple[str, ...]] = ("worker",)
    least: ClassVar[int] = 0
    """Agents that are there anyway."""

    max_agents: int = 16

    def require_width(self) -> None:
        """The check every such game needs."""
        self.require(1 <= self.max_agents <= 100_000, "max_agents", "it must be from 1 to 100,000")

    def price(self) -> float:
        """What one more agent costs."""
        raise NotImplementedError

    def outcome(self, agents: int) -> Sequence[tuple[float, float]]:
        """(probability, reward) of letting so many work."""
        raise NotImplementedError

    def rules(self) -> str:
        """The parameters in words."""
        raise NotImplementedError

    def worth(self, agents: int) -> float:
        """Expected reward of exactly so many agents, net of their price."""
        return sum(p * r for p, r in self.outcome(agents)) - self.price() * (agents - self.least)

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (self.least,)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return ("spawn worker: help", "wait") if state[0] < self.max_agents else ("wait",)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        if option == "wait":
            return tuple(Branch(p, OVER, reward) for p, reward in self.outcome(state[0]) if p > 0)
        return (Branch(1.0, (state[0] + 1,), -self.price()),)

    def quit(self, state: State) -> str:  # noqa: ARG002 (always open)
        return "wait"

    def spawned(self, state: State) -> int:
        return int(state[0]) - self.least

    def text(self, state: State) -> str:
        return f"{self.rules()}\nagents: {state[0]}\none more, or go?" if state else "over"
