"""A game of your own: one decision with a known optimum. Here, how often to toss a coin before betting on it.

A state is nested tuples of ints, an option is a one-line command, and `step` gives every branch with its probability.
What follows is exact: the solver, regret, play as an environment; and it is a task to train on.

    baton game solve my_game:Coin && baton run game:my_game:Coin --policy optimal --out runs/coin
"""

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State
from baton.games.solve import solve
from baton.testing import check_game


class Coin(Game, frozen=True, kw_only=True):
    """A coin shows heads with chance `bias` or 1 - `bias`; each toss costs; bet on which."""

    name: ClassVar[str] = "coin"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)
    bias: float = 0.8
    toss_cost: float = 0.03
    max_tosses: int = 10

    def __post_init__(self) -> None:
        self.require(0.5 < self.bias < 1, "bias", "it lies above 0.5 and below 1")
        self.require(0 <= self.max_tosses <= 100, "max_tosses", "the solver takes 0 to 100")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0, 0)),)

    def options(self, state: State) -> tuple[str, ...]:
        bets = ("stop heads", "stop tails") if state else ()
        return (*bets, "wait any") if bets and sum(state) < self.max_tosses else bets

    def decision(self, state: State) -> Choice:  # noqa: ARG002  # there is one decision
        return "stop"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        heads, tails = state
        odds = (self.bias / (1 - self.bias)) ** (heads - tails)
        biased = odds / (1 + odds)  # the probability that it is the coin that likes heads
        if option != "wait any":
            return (Branch(1.0, OVER, biased if option == "stop heads" else 1 - biased),)
        head, cost = biased * self.bias + (1 - biased) * (1 - self.bias), -self.toss_cost
        return (Branch(head, (heads + 1, tails), cost), Branch(1 - head, (heads, tails + 1), cost))

    def text(self, state: State) -> str:
        return f"heads {state[0]}, tails {state[1]}: bet or toss again?" if state else "over"

    def quit(self, state: State) -> str:
        return "stop heads" if state[0] >= state[1] else "stop tails"


if __name__ == "__main__":
    print(f"{check_game(Coin())} states, the optimum is {solve(Coin()).value:.4f}")
