"""O3: is one message worth its cost? A scout knows something; ask it, or act without.

VOI = E_m max_a E[u | m] - max_a E[u]; ask if and only if VOI > cost. VOI is never negative and never
above the value of knowing the world exactly.
Source: Howard, "Information value theory", 1966.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State

Rows = tuple[tuple[float, ...], ...]


class OneShotMessage(Game, frozen=True, kw_only=True):
    """Ask or not, then act."""

    name: ClassVar[str] = "one-shot-message"
    decisions: ClassVar[tuple[Choice, ...]] = ("communicate", "stop")
    roles: ClassVar[tuple[str, ...]] = ("scout",)

    prior: tuple[float, ...] = (0.6, 0.4)
    """How likely each world is before the message."""
    channel: Rows = ((0.9, 0.1), (0.2, 0.8))
    """channel[world][message]."""
    utility: Rows = ((1.0, 0.0), (0.0, 1.0), (0.55, 0.55))
    """utility[action][world]."""
    cost: float = 0.05
    """What the message costs."""

    def __post_init__(self) -> None:
        self.require(_is_distribution(self.prior), "prior", "probabilities must sum to 1")
        shaped = len(self.channel) == len(self.prior) and len({len(row) for row in self.channel}) == 1
        self.require(shaped, "channel", "there must be one row per world, all of one length")
        self.require(all(map(_is_distribution, self.channel)), "channel", "each row must sum to 1")
        fits = bool(self.utility) and all(len(row) == len(self.prior) for row in self.utility)
        self.require(fits, "utility", "there must be one row per action with one number per world")
        self.require(self.cost >= 0, "cost", "it must not be negative")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0,)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return ("send scout: report", "wait") if state[0] == 0 else self._acts()

    def decision(self, state: State) -> Choice:
        return "communicate" if state[0] == 0 else "stop"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        if option == "wait":
            return (Branch(1.0, (1,)),)
        if state[0] == 0:
            return tuple(
                Branch(p, (2, m), -self.cost)
                for m in range(len(self.channel[0]))
                if (p := sum(w * row[m] for w, row in zip(self.prior, self.channel, strict=True))) > 0
            )
        row = self.utility[self._acts().index(option)]
        return tuple(Branch(p, OVER, row[w]) for w, p in enumerate(self.belief(state)) if p > 0)

    def quit(self, state: State) -> str:
        if state[0] == 0:
            return "wait"
        belief = self.belief(state)
        worth = [sum(p * u for p, u in zip(belief, row, strict=True)) for row in self.utility]
        return self._acts()[worth.index(max(worth))]

    def text(self, state: State) -> str:
        if not state:
            return "over"
        if state[0] == 0:
            return f"a message costs {self.cost:g}\nask the scout?"
        return (f"the scout says {state[1] + 1}" if state[0] == 2 else "no message") + "\nwhich action?"

    def belief(self, state: State) -> tuple[float, ...]:
        """How likely each world is, after the message if there was one."""
        if state[0] != 2:
            return self.prior
        joint = [w * row[state[1]] for w, row in zip(self.prior, self.channel, strict=True)]
        return tuple(p / sum(joint) for p in joint)

    def _acts(self) -> tuple[str, ...]:
        return tuple(f"stop action {a + 1}" for a in range(len(self.utility)))

    def voi(self) -> float:
        """The value of information, by its formula."""
        informed = sum(
            max(
                sum(
                    w * row[m] * u[i] for i, (w, row) in enumerate(zip(self.prior, self.channel, strict=True))
                )
                for u in self.utility
            )
            for m in range(len(self.channel[0]))
        )
        return informed - self._uninformed()

    def _uninformed(self) -> float:
        return max(sum(p * u for p, u in zip(self.prior, row, strict=True)) for row in self.utility)

    def facts(self) -> dict[str, float]:
        return {"voi": self.voi(), "value": self._uninformed() + max(0.0, self.voi() - self.cost)}


def _is_distribution(row: Sequence[float]) -> bool:
    return bool(row) and all(p >= 0 for p in row) and abs(sum(row) - 1) < 1e-9
