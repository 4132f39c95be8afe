"""A game of your own: one decision with a known optimum. Here, how often to ask a coin before betting.

A state is nested tuples of ints, an option is a one-line command, and `step` gives every branch
with its probability. What follows is exact: the solver, regret, play as an environment.

Type: python examples/my_game.py
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
        if not state:
            return ()
        bets = ("stop heads", "stop tails")
        return (*bets, "wait any") if sum(state) < self.max_tosses else bets

    def decision(self, state: State) -> Choice:  # noqa: ARG002  # there is one decision
        return "stop"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        heads, tails = state
        biased = self._belief(heads, tails)
        if option == "wait any":
            head = biased * self.bias + (1 - biased) * (1 - self.bias)
            return (
                Branch(head, (heads + 1, tails), -self.toss_cost),
                Branch(1 - head, (heads, tails + 1), -self.toss_cost),
            )
        return (Branch(1.0, OVER, biased if option == "stop heads" else 1 - biased),)

    def _belief(self, heads: int, tails: int) -> float:
        """Probability that it is the coin that likes heads."""
        odds = (self.bias / (1 - self.bias)) ** (heads - tails)
        return odds / (1 + odds)

    def text(self, state: State) -> str:
        return f"heads {state[0]}, tails {state[1]}: bet or toss again?" if state else "over"

    def quit(self, state: State) -> str:
        return "stop heads" if state[0] >= state[1] else "stop tails"


if __name__ == "__main__":
    game = Coin()
    print(f"{check_game(game)} states")
    solution = solve(game)
    print(f"the optimum is {solution.value:.4f}; after one head: {solution.q((1, 0))}")
