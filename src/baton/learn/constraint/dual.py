"""The price of a constraint: it rises while a run's mean cost is over the limit, and falls while it is under it.

    held  <- clip(held + rate (mean cost - limit), 0, most)
    price  = clip(held + proportional (mean cost - limit), 0, most)

(dual ascent; the policy earns return - price x cost, which is the Lagrangian.) Where the two come to rest, the price is
what a little more of the limit is worth and the mean cost is at the limit, or the price is 0 and the limit idle.
`smooth` averages the cost over steps before it moves the price, so that one step's luck does not.

By `rate` alone a price gets anywhere only by way of what is paid for it: while it stays off 0 and `most`, what runs
were over the limit by, summed over the steps, is (price at the end - price at the start) / rate. `proportional` asks
for more at once while there is too much, and for less as soon as there is not, so that a faster rate does not swing.

Invariant: everything is a function of the costs seen so far, so a run that is resumed goes on with the same price.
Source: Lagrangian relaxation of constrained Markov decision problems, Altman 1999 [M]; as trained, RCPO,
arXiv 1805.11074 [A]; the proportional part, Stooke, Achiam and Abbeel, ICML 2020, arXiv 2007.03964 [A].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from baton.learn.recipe import ConstraintPart


class Dual:
    """One constraint's price."""

    def __init__(self, part: ConstraintPart) -> None:
        self.part = part
        self.price = part.start
        self.held = part.start
        """What of the price was built up over the steps."""
        self.mean: float | None = None
        """The average cost over the steps so far; None before there was one."""

    def observe(self, costs: Sequence[float]) -> None:
        """One step's costs, a rollout each."""
        now = sum(costs) / len(costs)
        keep = self.part.smooth
        self.mean = now if self.mean is None else keep * self.mean + (1 - keep) * now
        over = self.mean - self.part.limit
        self.held = self._bounded(self.held + self.part.rate * over)
        self.price = self._bounded(self.held + self.part.proportional * over)

    def _bounded(self, price: float) -> float:
        return min(max(price, 0.0), self.part.most)

    def state_dict(self) -> dict[str, Any]:
        return {"price": self.price, "held": self.held, "mean": self.mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.price, self.mean = state["price"], state["mean"]
        self.held = state.get("held", self.price)  # a checkpoint from before there was a proportional part
