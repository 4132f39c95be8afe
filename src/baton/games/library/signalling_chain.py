"""Credit of messages: relays carry one bit to a receiver; two of them suffice alone (redundancy).

Message i arrives through `hops[i]` relays, each of which flips it with probability `flip`, so it is
right with (1 + (1-2 flip)^hops)/2. v(S) is the receiver's accuracy from the messages in S, above the
1/2 it has from none. With two sure copies, leave-one-out credits neither; Shapley splits them, and
their interaction is negative.
Source: Shapley 1953; interaction, Grabisch and Roubens 1999.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar

from baton.games.coalition import shapley
from baton.games.game import Choice
from baton.games.library.recruit import Recruit


class SignallingChain(Recruit, frozen=True, kw_only=True):
    """Which messages to let through."""

    name: ClassVar[str] = "signalling-chain"
    decisions: ClassVar[tuple[Choice, ...]] = ("communicate", "communicate")

    hops: tuple[int, ...] = (0, 0, 2, 4)
    """Relays on each message's way."""
    flip: float = 0.1

    def __post_init__(self) -> None:
        self.require_players("hops")
        self.require(len(self.hops) <= 10, "hops", "exact accuracy takes at most 10 messages")
        self.require(all(h >= 0 for h in self.hops), "hops", "none may be negative")
        self.require(0 <= self.flip <= 0.5, "flip", "it must be from 0 to 0.5")

    def players(self) -> int:
        return len(self.hops)

    def accuracies(self) -> list[float]:
        """How often each message is right."""
        return [(1 + (1 - 2 * self.flip) ** h) / 2 for h in self.hops]

    @cached_property
    def _known(self) -> dict[int, float]:
        return {}

    def worth(self, mask: int) -> float:
        if mask not in self._known:
            right = [a for i, a in enumerate(self.accuracies()) if mask >> i & 1]
            best = 0.0
            for said in product((True, False), repeat=len(right)):
                if_yes = prod(a if yes else 1 - a for a, yes in zip(right, said, strict=True))
                if_no = prod(1 - a if yes else a for a, yes in zip(right, said, strict=True))
                best += max(if_yes, if_no) / 2
            self._known[mask] = best - 0.5
        return self._known[mask]

    def credit(self) -> list[float]:
        return shapley(self.players(), self.worth)

    def rules(self) -> str:
        ways = " ".join(map(str, self.hops))
        return (
            f"messages come through {ways} relays, each flips with {self.flip:g}; the receiver needs the bit"
        )
