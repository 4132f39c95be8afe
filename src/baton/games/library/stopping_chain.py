"""O5: workers are out; each step some return and may improve the draft. When to aggregate and stop?

A draft with q good returns scores 1-(1-gain)^q. Each step costs; a worker still out returns with
probability `back` and is good with `good`; stopping cancels those still out at a price each.
V(t, q, w) = max{S(q) - cancel w, -c + E V(t+1, q', w')}, the stop value over a running team.
Source: optimal stopping by backward induction (Chow, Robbins and Siegmund 1971).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb
from typing import ClassVar, Literal

from baton.games.game import OVER, Branch, Choice, Game, State


class StoppingChain(Game, frozen=True, kw_only=True):
    """Wait for those still out, or stop."""

    name: ClassVar[str] = "stopping-chain"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)

    num_workers: int = 5
    num_steps: int = 8
    gain: float = 0.4
    """Share of what is missing that one good return adds."""
    back: float = 0.35
    """Chance that a worker returns in a step."""
    good: float = 0.7
    """Chance that a return is good."""
    step_cost: float = 0.05
    cancel_cost: float = 0.02
    """What each worker that is cancelled costs."""
    view: Literal["counts", "ratio"] = "counts"
    """What is read of the workers: how many, or those still out beside the good returns, in words that mean the same
    in a team of any size."""

    def __post_init__(self) -> None:
        self.require(0 <= self.num_workers <= 30, "num_workers", "the exact solver takes 0 to 30")
        self.require(0 <= self.num_steps <= 100, "num_steps", "the exact solver takes 0 to 100")
        for field in ("gain", "back", "good"):
            self.require(0 <= getattr(self, field) <= 1, field, "a share or probability lies from 0 to 1")
        for field in ("step_cost", "cancel_cost"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")

    def score(self, returns: int) -> float:
        """What a draft with so many good returns scores."""
        return 1 - (1 - self.gain) ** returns

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0, 0, self.num_workers)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return ("stop draft", "wait any") if state[0] < self.num_steps and state[2] else ("stop draft",)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        t, quality, out = state
        if option == "stop draft":
            return (Branch(1.0, OVER, self.score(quality) - self.cancel_cost * out),)
        branches = []
        for back in range(out + 1):
            for good in range(back + 1):
                p = _binomial(out, back, self.back) * _binomial(back, good, self.good)
                if p > 0:
                    branches.append(Branch(p, (t + 1, quality + good, out - back), -self.step_cost))
        return branches

    def quit(self, state: State) -> str:  # noqa: ARG002 (always open)
        return "stop draft"

    def text(self, state: State) -> str:
        if not state:
            return "over"
        t, quality, out = state
        left = f"steps left: {self.num_steps - t}"
        if self.view == "ratio":
            return f"{left}\nstill out beside good returns: {_beside(out, quality)}\nstop or wait?"
        return f"{left}\ngood returns: {quality}\nstill out: {out}\nstop or wait?"


def _beside(out: int, good: int) -> str:
    """How many are out, held against the good returns."""
    if not out:
        return "none"
    if out <= good:
        return "fewer" if out < good else "as many"
    return "more" if out < 2 * max(good, 1) else "many more"


@cache
def _binomial(n: int, k: int, p: float) -> float:
    return comb(n, k) * p**k * (1 - p) ** (n - k)
