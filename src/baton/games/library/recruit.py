"""Any cooperative game as a decision problem: whom to spawn, for v(S) in the end.

A state is (phase, coalition). One more or stop (O1), then who (O2); V* = max over coalitions of v(S)
plus what each member brings or costs. The characteristic function and exact credit are the ground
truth credit estimators are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.coalition import MAX_PLAYERS
from baton.games.game import OVER, Branch, Choice, Game, State

_MORE, _WHO = 0, 1


class Recruit(Game, frozen=True, kw_only=True):
    """Form a coalition one by one."""

    decisions: ClassVar[tuple[Choice, ...]] = ("spawn", "delegate")
    roles: ClassVar[tuple[str, ...]] = ("player",)

    price: float = 0.05
    """What each member costs."""

    def players(self) -> int:
        """How many there are."""
        raise NotImplementedError

    def worth(self, mask: int) -> float:
        """The characteristic function, on bit masks."""
        raise NotImplementedError

    def credit(self) -> list[float]:
        """Each player's exact share of v(everyone), in closed form."""
        raise NotImplementedError

    def brings(self, player: int) -> float:  # noqa: ARG002 (most games charge all alike)
        """What a member adds by joining, apart from v."""
        return -self.price

    def joinable(self, mask: int) -> list[int]:
        """Who can come next."""
        return [i for i in range(self.players()) if not mask >> i & 1]

    def require_players(self, field: str) -> None:
        """The check every such game needs."""
        fits = 1 <= self.players() <= MAX_PLAYERS
        self.require(fits, field, f"exact values take 1 to {MAX_PLAYERS} players")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (_MORE, 0)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        phase, mask = state
        if phase == _MORE:
            return ("spawn player: join", "stop here") if self.joinable(mask) else ("stop here",)
        return tuple(f"delegate player: {i + 1}" for i in self.joinable(mask))

    def decision(self, state: State) -> Choice:
        return self.decisions[state[0]]

    def step(self, state: State, option: str) -> Sequence[Branch]:
        _, mask = state
        if option == "stop here":
            return (Branch(1.0, OVER, self.worth(mask)),)
        if option.startswith("spawn"):
            return (Branch(1.0, (_WHO, mask)),)
        player = int(option.rsplit(" ", 1)[1]) - 1
        return (Branch(1.0, (_MORE, mask | 1 << player), self.brings(player)),)

    def quit(self, state: State) -> str:
        return "stop here" if state[0] == _MORE else self.options(state)[0]

    def spawned(self, state: State) -> int:
        return int(state[1]).bit_count()

    def rules(self) -> str:
        """The characteristic function in words."""
        raise NotImplementedError

    def text(self, state: State) -> str:
        if not state:
            return "over"
        members = " ".join(str(i + 1) for i in range(self.players()) if state[1] >> i & 1)
        return f"{self.rules()}\nin: {members or 'nobody'}\n" + ("one more?" if state[0] == _MORE else "who?")

    def facts(self) -> dict[str, float]:
        return {f"credit_{i + 1}": value for i, value in enumerate(self.credit())}
